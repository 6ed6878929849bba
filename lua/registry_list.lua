#!lua flags=no-writes
-- Read one page of principals, quorums or tasks, in the order in which they were added.
-- Request: which (principals, quorums or tasks), the number after which to begin, how many
-- Reply:   a list of entries: number, id, then the fields and values of its hash
-- Refuses: nothing
-- Touches: principals, principal, quorums, quorum, tasks, task
-- Cost:    O(log N + M) in the fields of the entries of one page
-- Again:   the entries as they are then
-- Pieces:  call
local which, after, most = ARGV[7], ARGV[8], tonumber(ARGV[9])

-- check
local index = ({ principals = key_principals(), quorums = key_quorums(), tasks = key_tasks() })[which]
local spell = ({ principals = key_principal, quorums = key_quorum, tasks = key_task })[which]
local found, page = redis.call('ZRANGE', index, '(' .. after, '+inf', 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES'), {}
for n = 1, #found, 2 do
  page[#page + 1] = { whole(tonumber(found[n + 1])), found[n], redis.call('HGETALL', spell(found[n])) }
end
return page
