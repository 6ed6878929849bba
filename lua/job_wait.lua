#!lua flags=allow-oom
-- Let an idle caller be woken when work that it may see appears, or say that some is there already.
-- Request: waiter, milliseconds to stay registered ('0' withdraws, '' only looks), kinds ('' for any; at most 16)
-- Reply:   'now', or milliseconds until the next look
-- Refuses: UNAUTHENTICATED
-- Touches: principal, ready, kinds, projects, projects_of, limits, running, waiting, waiter, wake, watched
-- Cost:    O(K * G): K kinds, G the caller's grants as in job_claim; looks end at 4,000 of them
-- Again:   the same waiter is registered anew; the last call counts
-- Pieces:  clock, call, ready, waiter, claimable
local waiter, stay = ARGV[7], tonumber(ARGV[8])

-- check
if not read_principal() then return refuse('UNAUTHENTICATED') end
local grants = 0
for field in pairs(facts) do
  if field:sub(1, 6) == 'grant:' then grants = grants + 1 end
end
local kinds = math.min(#ARGV, 8 + math.max(1, math.floor(4000 / math.max(grants, 1))))

local function something_claimable()
  for n = 9, kinds do
    if projects_with_work(ARGV[n])[1] then return true end
  end
  return false
end

-- Call with the number and the instant of what becomes claimable before the next look, as far as the heads tell.
local function each_soon(wanted, act)
  local from, to = '(' .. whole(now), whole(now + WAIT_LOOK)
  local function look(index)
    local found = redis.call('ZRANGE', index, from, to, 'BYSCORE', 'LIMIT', 0, 8, 'WITHSCORES')
    for n = 1, #found, 2 do act(found[n]:sub(1, SEQ - 1), tonumber(found[n + 1])) end
  end
  if facts['grant:*'] then return look(wanted == '' and key_projects() or key_projects_of(wanted)) end
  for field in pairs(facts) do
    if field:sub(1, 6) == 'grant:' then
      local project = field:sub(7)
      look(wanted == '' and key_kinds(project) or key_ready(project, wanted))
    end
  end
end

-- write
if stay == 0 then
  withdraw(waiter)
  sign(waiter)
  return { 'now' }
end
-- Where not all kinds could be looked at, a later look lets the caller try for itself.
if something_claimable() or (not stay and kinds < #ARGV) then
  withdraw(waiter)
  return { 'now' }
end

-- Of several idle callers one is enough to be there when something is due: the first who sees it watches.
local mine, number, due = redis.call('HGET', key_waiter(waiter), 'watches'), nil, nil
for n = 9, kinds do
  each_soon(ARGV[n], function(seq, at)
    if due and at >= due then return end
    local watched_until = redis.call('ZSCORE', key_watched(), seq)
    if seq == mine or not watched_until or tonumber(watched_until) <= now then number, due = seq, at end
  end)
end
if mine and mine ~= number then redis.call('ZREM', key_watched(), mine) end
if due then
  redis.call('ZADD', key_watched(), whole(due), number)
  redis.call('PEXPIRE', key_watched(), 2 * WAIT_LOOK)
end
if stay then
  redis.call('DEL', key_waiter(waiter))
  redis.call('HSET', key_waiter(waiter), 'client_id', client_id, 'holder', holder)
  redis.call('PEXPIRE', key_waiter(waiter), stay)
  for n = 9, #ARGV do
    redis.call('HSET', key_waiter(waiter), 'kind:' .. ARGV[n], '1')
    redis.call('ZREMRANGEBYSCORE', key_waiting(ARGV[n]), '-inf', whole(now))
    redis.call('ZADD', key_waiting(ARGV[n]), whole(now + stay), waiter)
    redis.call('PEXPIRE', key_waiting(ARGV[n]), WAIT_STAY)
  end
end
if due and redis.call('EXISTS', key_waiter(waiter)) == 1 then redis.call('HSET', key_waiter(waiter), 'watches', number) end
return { whole(due and due - now or WAIT_LOOK) }
