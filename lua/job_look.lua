#!lua flags=no-writes
-- Show one covered job with the beginning of its payload.
-- Request: 'operator' or ''; job_id, how many bytes of the payload
-- Reply:   server time, the job as shown, the beginning of its payload, the length of the whole
-- Refuses: UNAUTHENTICATED, JOB_NOT_FOUND
-- Touches: principal, job, payload, token
-- Cost:    O(B) in the bytes of the payload that are given
-- Again:   the job as it is then
-- Pieces:  clock, call, token, caller, sight, shown
local job_id, bytes = ARGV[8], tonumber(ARGV[9])

-- check
local job = look(job_id)
if not job or not covers(job.project) then return refuse('JOB_NOT_FOUND') end
local length, payload = redis.pcall('STRLEN', key_payload(job_id)), ''
if type(length) == 'table' then length = 0 end
if length > 0 and bytes > 0 then payload = redis.call('GETRANGE', key_payload(job_id), 0, bytes - 1) end
return { whole(now), row(job), payload, whole(length) }
