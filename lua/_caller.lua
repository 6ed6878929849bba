-- What the caller may do, read in the same script as the move it authorises.
-- Gives: live, conductor, covers (star or the very grant), explicit (the very grant).
local function caller(project)
  local found = redis.call('HMGET', key_principal(client_id), 'standing', 'conductor', 'grant:*', 'grant:' .. project)
  return found[1] == 'live', found[2] == '1', (found[3] or found[4]) and true, found[4] and true
end
