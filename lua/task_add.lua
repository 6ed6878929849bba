#!lua
-- Register one task, live.
-- Request: task_id
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_TASK
-- Touches: replay, task, tasks, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer; else a live task: 0, no event; a closed one: UNKNOWN_TASK
-- Pieces:  clock, call, replay, event
local id = ARGV[7]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local standing = redis.call('HGET', key_task(id), 'standing')
if standing == 'live' then return 0 end
if standing then return refuse('UNKNOWN_TASK') end

-- write
local event = record(next_event(), 'task.added', id, { to = 'live' })
redis.call('HSET', key_task(id), 'standing', 'live', 'created_at', whole(now), 'last_event', event)
redis.call('ZADD', key_tasks(), event, id)
remember('1')
return 1
