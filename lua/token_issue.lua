#!lua
-- Issue one token to a principal; in place of another one, whose time is then cut to an overlap.
-- Request: token id, client_id, scope, digest, milliseconds to live ('' for ever), the id it replaces or '', overlap in ms
-- Reply:   expires_at ('' for ever), 'replay' when it answers a repeat
-- Refuses: REQUEST_ID_REUSED, UNKNOWN_PRINCIPAL, UNKNOWN_TOKEN, TOKEN_NOT_LIVE
-- Touches: replay, principal, token, tokens, profile, history
-- Cost:    O(log N) in the tokens of the profile
-- Again:   under the same request id the first answer, nothing written
-- Pieces:  clock, call, replay, event
local id, owner, scope, digest, stay, replaced, overlap =
  ARGV[7], ARGV[8], ARGV[9], ARGV[10], tonumber(ARGV[11]), ARGV[12], tonumber(ARGV[13])

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return { answer, 'replay' } end
if not redis.call('HGET', key_principal(owner), 'standing') then return refuse('UNKNOWN_PRINCIPAL') end
local before = redis.call('HMGET', key_token(replaced), 'client_id', 'scope', 'standing', 'expires_at', 'last_event')
if replaced ~= '' then
  if before[1] ~= owner or before[2] ~= scope then return refuse('UNKNOWN_TOKEN') end
  if before[3] ~= 'live' or (tonumber(before[4]) or math.huge) <= now then return refuse('TOKEN_NOT_LIVE') end
end

-- write
local number = next_event(replaced == '' and 1 or 2)
local expires_at = stay and whole(now + stay) or ''
if replaced ~= '' then
  local ends_at = whole(math.min(now + overlap, tonumber(before[4]) or math.huge))
  local event = record(number - 1, 'token.replaced', replaced,
    { from = 'live', to = 'live', reason = owner, prev = before[5] })
  redis.call('HSET', key_token(replaced), 'expires_at', ends_at, 'last_event', event)
end
local event = record(number, 'token.issued', id, { to = 'live', reason = owner })
redis.call('HSET', key_token(id), 'standing', 'live', 'client_id', owner, 'scope', scope, 'digest', digest,
  'created_at', whole(now), 'expires_at', expires_at, 'last_event', event)
redis.call('ZADD', key_tokens(), event, id)
remember(expires_at)
return { expires_at }
