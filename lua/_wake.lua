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

local function waited_for(kind) return redis.call('EXISTS', key_waiting(kind), key_waiting('')) > 0 end

-- Wake one waiter for work that is, or soon will be, claimable; tell whether there was one.
local function wake(project, kind)
  return waited_for(kind) and (wake_one(key_waiting(kind), project) or wake_one(key_waiting(''), project))
end
