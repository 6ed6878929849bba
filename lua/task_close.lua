#!lua flags=allow-oom
-- Close one task; it holds from the very next call.
-- Request: task_id
-- Reply:   1 when something changed, else 0
-- Refuses: UNKNOWN_TASK
-- Touches: task, profile, history
-- Cost:    O(1)
-- Again:   nothing is left to change: 0, no event
-- Pieces:  clock, call, event
local id = ARGV[7]

-- check
local task = redis.call('HMGET', key_task(id), 'standing', 'last_event')
if not task[1] then return refuse('UNKNOWN_TASK') end
if task[1] == 'closed' then return 0 end

-- write
local event = record(next_event(), 'task.closed', id, { from = task[1], to = 'closed', prev = task[2] })
redis.call('HSET', key_task(id), 'standing', 'closed', 'last_event', event)
return 1
