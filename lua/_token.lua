-- A caller may present a token instead of its name: a NUL, the token's id, a blank, its digest. It is held against the
-- stored one here, in the very move of the call, and stands for its principal from here on; any that is not live is
-- refused, whatever is wrong with it. Both digests are hashes of the token, so the time that comparing them takes tells
-- nothing of it.
local presented = client_id:sub(1, 1) == '\0'
if presented then
  local id, digest = client_id:match('^%z(%w+) (%x+)$')
  local token = redis.pcall('HMGET', key_token(id or ''), 'standing', 'digest', 'expires_at', 'client_id')
  local expires_at = token[3] == '' and math.huge or tonumber(token[3]) or 0
  local live = token[1] == 'live' and token[2] == digest and expires_at > now -- which not even NaN is by mistake
  if not live or not token[4] then return refuse('UNAUTHENTICATED') end
  client_id = token[4]
end
