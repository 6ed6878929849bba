#!lua
-- Register one principal, live.
-- Request: client_id, conductor ('1' or '0'), its grants
-- Reply:   1 when something changed, else 0
-- Refuses: REQUEST_ID_REUSED, PRINCIPAL_EXISTS
-- Touches: replay, principal, principals, profile, history
-- Cost:    O(G) in the grants given, at most 1,000
-- Again:   under the same request id the first answer; else a principal with these very facts: 0, no event; with others: PRINCIPAL_EXISTS
-- Pieces:  clock, call, replay, event
local id, conductor = ARGV[7], ARGV[8]

-- check
local answer, reused = recall()
if reused then return reused end
if answer then return 1 end
local existing = redis.call('HGETALL', key_principal(id))
if #existing > 0 then
  local held, asked = 0, 0
  local facts = {}
  for n = 1, #existing, 2 do
    facts[existing[n]] = existing[n + 1]
    if existing[n]:sub(1, 6) == 'grant:' then held = held + 1 end
  end
  for n = 9, #ARGV do
    if not facts['grant:' .. ARGV[n]] then return refuse('PRINCIPAL_EXISTS') end
    asked = asked + 1
  end
  if held ~= asked or facts.conductor ~= conductor or facts.standing ~= 'live' then return refuse('PRINCIPAL_EXISTS') end
  return 0
end

-- write
local number = next_event(1 + #ARGV - 8)
local first = number - (#ARGV - 8)
local last = record(first, 'principal.added', id, { to = conductor == '1' and 'conductor' or 'live' })
local facts = { 'standing', 'live', 'conductor', conductor, 'created_at', whole(now) }
for n = 9, #ARGV do
  last = record(first + n - 8, 'principal.granted', id, { project = ARGV[n], prev = last })
  facts[#facts + 1] = 'grant:' .. ARGV[n]
  facts[#facts + 1] = '1'
end
redis.call('HSET', key_principal(id), 'last_event', last, unpack(facts))
redis.call('ZADD', key_principals(), whole(first), id)
remember('1')
return 1
