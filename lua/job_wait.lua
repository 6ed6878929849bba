#!lua flags=allow-oom
-- Let an idle caller be woken when work that it may see appears, or say that some is there already.
-- Request: waiter, milliseconds to stay registered ('0' withdraws, '-1' also signs, '' only looks), kinds ('' for any; at most 16)
-- Reply:   'now', or milliseconds until the next look
-- Refuses: UNAUTHENTICATED
-- Touches: token, principal, ready, kinds, projects, projects_of, limits, running, waiting, waiter, wake, watched
-- Cost:    O(K * G): K kinds, G the caller's grants as in job_claim; looks end at 4,000 of them
-- Again:   the same waiter is registered anew; the last call counts
-- Pieces:  clock, call, token, ready, waiter, claimable
local waiter, stay = ARGV[7], tonumber(ARGV[8])

-- check
if not read_principal() then return refuse('UNAUTHENTICATED') end
local grants = 0
for field in pairs(facts) do
  if field:sub(1, 6) == 'grant:' then grants = grants + 1 end
end
local kinds = math.min(#ARGV, 8 + math.max(1, math.floor(4000 / math.max(grants, 1))))

-- What becomes claimable before the next look, as far as the heads tell: numbers and instants.
local soon = {}

-- Tell whether an index shows due work, which may yet be held back.
local function due_in(index)
  local due = false
  local found = redis.call('ZRANGE', index, '-inf', whole(now + WAIT_LOOK), 'BYSCORE', 'LIMIT', 0, 8, 'WITHSCORES')
  for n = 1, #found, 2 do
    local at = tonumber(found[n + 1])
    if at <= now then due = true else soon[#soon + 1] = { found[n]:sub(1, SEQ - 1), at } end
  end
  return due
end

local function any_due(wanted)
  if facts['grant:*'] then return due_in(wanted == '' and key_projects() or key_projects_of(wanted)) end
  local due = false
  for field in pairs(facts) do
    if field:sub(1, 6) == 'grant:' then
      local project = field:sub(7)
      due = due_in(wanted == '' and key_kinds(project) or key_ready(project, wanted)) or due
    end
  end
  return due
end

local function something_claimable()
  for n = 9, kinds do
    if any_due(ARGV[n]) and projects_with_work(ARGV[n])[1] then return true end
  end
  return false
end

-- Give what this caller is to watch: the earliest that is not watched yet, or for which no second is there, who looks a
-- second later lest the first has died.
local function to_watch(mine)
  table.sort(soon, function(a, b) return a[2] < b[2] end)
  for _, head in ipairs(soon) do
    for later, name in ipairs({ head[1], head[1] .. ' second' }) do
      local at = head[2] + (later - 1) * 1000
      local watched_until = redis.call('ZSCORE', key_watched(), name)
      if name == mine or not watched_until or tonumber(watched_until) <= now then return name, at end
    end
  end
end

-- write
if stay and stay <= 0 then
  withdraw(waiter)
  if stay < 0 then sign(waiter) end
  return { 'now' }
end
-- Where not all kinds could be looked at, a later look lets the caller try for itself.
if something_claimable() or (not stay and kinds < #ARGV) then
  withdraw(waiter)
  return { 'now' }
end

local name, at
if soon[1] then
  -- Of several idle callers two are enough to be there when something is due.
  local mine = redis.call('HGET', key_waiter(waiter), 'watches')
  name, at = to_watch(mine)
  if mine and mine ~= name then redis.call('ZREM', key_watched(), mine) end
end
if name then
  redis.call('ZADD', key_watched(), whole(at), name)
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
if name and redis.call('EXISTS', key_waiter(waiter)) == 1 then redis.call('HSET', key_waiter(waiter), 'watches', name) end
return { whole(name and at - now or WAIT_LOOK) }
