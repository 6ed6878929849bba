#!lua flags=no-writes
-- Read one page of principals, quorums, tasks or tokens, in the order in which they were added.
-- Request: which (principals, quorums, tasks or tokens), the number after which to begin, how many
-- Reply:   a list of entries: number, id, then the fields and values of its hash
-- Refuses: UNAUTHENTICATED
-- Touches: principals, principal, quorums, quorum, tasks, task, tokens, token
-- Cost:    O(log N + M) in the fields of the entries of one page
-- Again:   the entries as they are then
-- Pieces:  clock, call, token, caller
local which, after, most = ARGV[7], ARGV[8], tonumber(ARGV[9])

-- check
local families = { principals = { key_principals(), key_principal }, quorums = { key_quorums(), key_quorum },
  tasks = { key_tasks(), key_task }, tokens = { key_tokens(), key_token } }
local index, spell = unpack(families[which])
if presented then -- behind a door: star scope sees all, others themselves
  local live, _, star = caller('*')
  if not live then return refuse('UNAUTHENTICATED') end
  if not star and which ~= 'principals' then return {} end
  if not star then return { { after, client_id, redis.call('HGETALL', key_principal(client_id)) } } end
end
local found, page = redis.call('ZRANGE', index, '(' .. after, '+inf', 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES'), {}
for n = 1, #found, 2 do
  page[#page + 1] = { whole(tonumber(found[n + 1])), found[n], redis.call('HGETALL', spell(found[n])) }
end
return page
