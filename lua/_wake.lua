-- Wake the first of those in an index who may see the project; tell whether there was one.
local function wake_one(index, project)
  for _, waiter in ipairs(redis.call('ZRANGE', index, '(' .. whole(now), '+inf', 'BYSCORE', 'LIMIT', 0, 64)) do
    local of = redis.call('HGET', key_waiter(waiter), 'client_id')
    local found = redis.call('HMGET', key_principal(of or ''), 'standing', 'grant:*', 'grant:' .. project)
    if found[1] == 'live' and (found[2] or found[3]) then
      withdraw(waiter)
      sign(waiter)
      return true
    end
  end
  return false
end

-- Wake one waiter for work that is, or soon will be, claimable.
local function wake(project, kind)
  local of_kind, of_any = key_waiting(kind), key_waiting('')
  if redis.call('EXISTS', of_kind, of_any) == 0 then return end
  return wake_one(of_kind, project) or wake_one(of_any, project)
end
