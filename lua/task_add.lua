#!lua
-- Register one task, live.
-- Request: task_id
-- Reply:   1 when something changed, else 0
-- Refuses: UNKNOWN_TASK
-- Touches: task, tasks, profile, history
-- Cost:    O(1)
-- Again:   a live task: 0, no event; a closed one: UNKNOWN_TASK
-- Pieces:  clock, call, event
local id = ARGV[7]

-- check
local standing = redis.call('HGET', key_task(id), 'standing')
if standing == 'live' then return 0 end
if standing then return refuse('UNKNOWN_TASK') end

-- write
local event = record(next_event(), 'task.added', id, { to = 'live' })
redis.call('HSET', key_task(id), 'standing', 'live', 'created_at', whole(now), 'last_event', event)
redis.call('ZADD', key_tasks(), event, id)
return 1
