#!lua flags=no-writes
-- Count the covered jobs that have no outcome yet, by kind.
-- Request: 'operator' or ''
-- Reply:   server time, 'partial' when a bound below was reached, how many are damaged ('' unless all is covered); a
--          list of kinds, each: kind, queued, claimed, delayed, lapsed, exhausted, since when the earliest is
--          claimable ('' when none is), the kind's limit ('' when it has none)
-- Refuses: UNAUTHENTICATED
-- Touches: principal, job, ready, kinds, projects, spent, damaged, running, limits, token
-- Cost:    O(P log N): P pairs of project and kind and as many exhausted jobs, at most 1,000 of each; whoever does not
--          cover all walks at most 2,000 entries more
-- Again:   the counts as they are then
-- Pieces:  clock, call, token, caller, ready, sight, covered
local NOW, AFTER = whole(now), '(' .. whole(now)
local partial, of = false, {}

local function counts(kind)
  of[kind] = of[kind] or { kind = kind, due = 0, later = 0, live = 0, lapsed = 0, spent_live = 0, spent_lapsed = 0,
    exhausted = 0 }
  return of[kind]
end

local function count_pair(project, kind)
  local row, ready = counts(kind), key_ready(project, kind)
  local due = redis.call('ZCOUNT', ready, '-inf', NOW)
  row.due, row.later = row.due + due, row.later + redis.call('ZCOUNT', ready, AFTER, '+inf')
  local head = due > 0 and tonumber(earliest(ready)[2])
  if head and head < (row.since or math.huge) then row.since = head end
end

-- Count the claimed among the entries of all pairs in one range of time, walking at most 500. What is beyond that
-- counts as not claimed. The index of running jobs is no help, for it spans projects that the caller does not cover.
local function walk_pairs(from, to, into)
  local budget = 500
  for n, pair in ipairs(pairs_) do
    local ready, running = key_ready(pair[1], pair[2]), key_running(pair[2])
    local share = math.max(1, math.floor(budget / (#pairs_ - n + 1)))
    local entries = redis.call('ZRANGE', ready, from, to, 'BYSCORE', 'LIMIT', 0, share)
    for _, member in ipairs(entries) do
      if redis.call('ZSCORE', running, member:sub(SEQ + 1)) then of[pair[2]][into] = of[pair[2]][into] + 1 end
    end
    if #entries == share and redis.call('ZCOUNT', ready, from, to) > share then partial = true end
    budget = budget - #entries
  end
end

-- Jobs with no attempt left: those whose last lease is live are claimed, the others exhausted.
local function count_spent()
  local spent, more = find_spent()
  for _, one in ipairs(spent) do
    local job = redis.pcall('HMGET', key_job(one[1]), 'kind', 'project', 'standing')
    if job[1] and covers(job[2] or '') then
      local row, claimed, live = counts(job[1]), job[3] == 'claimed', one[2] > now
      local what = claimed and live and 'spent_live' or 'exhausted'
      row[what] = row[what] + 1
      if claimed and not live then row.spent_lapsed = row.spent_lapsed + 1 end
    end
  end
  partial = partial or more
end

local function count(number) return whole(math.max(0, number)) end

-- check
find_pairs()
for _, pair in ipairs(pairs_) do count_pair(pair[1], pair[2]) end
if not star then
  walk_pairs(AFTER, '+inf', 'live')
  walk_pairs('-inf', NOW, 'lapsed')
end
count_spent()
partial = partial or more_pairs
local limits, limit_of = redis.call('HGETALL', key_limits()), {}
for n = 1, #limits, 2 do limit_of[limits[n]] = limits[n + 1] end
local rows = {}
for kind, row in pairs(of) do
  if star then
    row.live = redis.call('ZCOUNT', key_running(kind), AFTER, '+inf') - row.spent_live
    row.lapsed = redis.call('ZCOUNT', key_running(kind), '-inf', NOW) - row.spent_lapsed
  end
  rows[#rows + 1] = { kind, count(row.due - row.lapsed), count(row.live + row.spent_live), count(row.later - row.live),
    count(row.lapsed), count(row.exhausted), row.since and whole(row.since) or '', limit_of[kind] or '' }
end
return { NOW, partial and 'partial' or '', star and whole(redis.call('ZCARD', key_damaged())) or '', rows }
