-- A job runs no longer; where its kind has a limit, another may take its place: wake one who may see such work, in the
-- projects where it has stood longest. Tell whether somebody was woken.
local function stop_running(job_id, job)
  redis.call('ZREM', key_running(job.kind), job_id)
  if redis.call('HEXISTS', key_limits(), job.kind) == 0 then return end
  local index = key_projects_of(job.kind)
  for _, member in ipairs(redis.call('ZRANGE', index, '-inf', whole(now), 'BYSCORE', 'LIMIT', 0, 16)) do
    if wake(member:sub(SEQ + 1), job.kind) then return true end
  end
end
