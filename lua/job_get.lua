#!lua flags=no-writes
-- Tell how one job stands, to a caller who covers its project.
-- Request: job_id
-- Reply:   kind, project, lane_id, standing, attempts, result_ref, reason, created_at, changed_at, due_at ('' where unset)
-- Refuses: UNAUTHENTICATED, JOB_NOT_FOUND
-- Touches: token, principal, job
-- Cost:    O(1)
-- Again:   how it stands then
-- Pieces:  clock, call, token, caller
local found = redis.call('HMGET', key_job(ARGV[7]), 'kind', 'project', 'lane_id', 'standing', 'attempts', 'result_ref',
  'reason', 'created_at', 'changed_at', 'due_at')

-- check
local live, _, covered = caller(found[2] or '')
if not live then return refuse('UNAUTHENTICATED') end
if not found[4] or not covered then return refuse('JOB_NOT_FOUND') end
for n = 1, 10 do found[n] = found[n] or '' end
return found
