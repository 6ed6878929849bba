#!lua flags=allow-oom
-- Close one task; it holds from the very next call.
-- Request: task_id
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_TASK
-- Touches: replay, task, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer; else nothing is left to change: 0, no event
-- Pieces:  clock, call, replay, event
local id = ARGV[7]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local task = redis.call('HMGET', key_task(id), 'standing', 'last_event')
if not task[1] then return refuse('UNKNOWN_TASK') end
if task[1] == 'closed' then return 0 end

-- write
local event = record(next_event(), 'task.closed', id, { from = task[1], to = 'closed', prev = task[2] })
redis.call('HSET', key_task(id), 'standing', 'closed', 'last_event', event)
remember('1')
return 1
