#!lua flags=allow-oom
-- Let at most so many jobs of a kind run at a time over the whole profile, or lift that.
-- Request: kind, how many ('' lifts the limit)
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, LIMIT_REACHED
-- Touches: replay, kind, limits, projects_of, principal, waiting, waiter, wake, watched, profile, history
-- Cost:    O(1); at most 16 projects are looked at for whom to wake
-- Again:   under the same request id the first answer; else nothing is left to change: 0, no event
-- Pieces:  clock, call, replay, event, ready, waiter, wake
local kind, most = ARGV[7], ARGV[8]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local before = redis.call('HGET', key_limits(), kind) or ''
if before == most then return 0 end
if before == '' and redis.call('HLEN', key_limits()) >= LIMITED_KINDS then return refuse('LIMIT_REACHED') end

-- write
local event = record(next_event(), 'kind.limited', kind,
  { from = before, to = most, prev = redis.call('HGET', key_kind(kind), 'last_event') })
if most == '' then redis.call('HDEL', key_limits(), kind) else redis.call('HSET', key_limits(), kind, most) end
redis.call('HSET', key_kind(kind), 'limit', most, 'last_event', event)
remember('1')
for _, member in ipairs(redis.call('ZRANGE', key_projects_of(kind), '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, 16)) do
  wake(member:sub(SEQ + 1), kind)
end
return 1
