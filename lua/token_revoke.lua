#!lua flags=allow-oom
-- Revoke one token; it holds from the very next call.
-- Request: token id
-- Reply:   1 when something changed, else 0
-- Refuses: UNAUTHENTICATED, REQUEST_ID_REUSED, UNKNOWN_TOKEN
-- Touches: token, principal, replay, profile, history
-- Cost:    O(1)
-- Again:   under the same request id the first answer; else nothing is left to change: 0, no event
-- Pieces:  clock, call, token, caller, replay, event
local id = ARGV[7]

-- check
local facts = redis.call('HMGET', key_token(id), 'standing', 'client_id', 'last_event')
if presented then -- behind a door everybody revokes its own tokens, a conductor with star scope all
  local live, conductor, star = caller('*')
  if not live then return refuse('UNAUTHENTICATED') end
  if not (conductor and star) and facts[2] ~= client_id then return refuse('UNKNOWN_TOKEN') end
end
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
if not facts[1] then return refuse('UNKNOWN_TOKEN') end
if facts[1] ~= 'live' then return 0 end

-- write
local event = record(next_event(), 'token.revoked', id,
  { from = 'live', to = 'revoked', reason = facts[2], prev = facts[3] })
redis.call('HSET', key_token(id), 'standing', 'revoked', 'last_event', event)
remember('1')
return 1
