#!lua flags=no-writes
-- Read one page of the feed, or walk back the chain of one entity from its newest event.
-- Request: entity_id ('' for the feed), the event number after which to begin ('' for the start), how many, '1' to walk from event numbers given next, those numbers
-- Reply:   for the feed a list of entries, oldest first; for an entity its entries, newest first, then the numbers to walk on from
-- Refuses: nothing
-- Touches: history, job, kind, lane, principal, quorum, task, token
-- Cost:    O(M log N) in the events of one page, at most 1,000
-- Again:   the events as they are then
-- Pieces:  call
local entity_id, after, most = ARGV[7], ARGV[8], tonumber(ARGV[9])

-- check
if entity_id == '' then
  return redis.call('XRANGE', key_history(), after == '' and '-' or '(' .. after .. '-0', '+', 'COUNT', most)
end
local heads, found, floor = {}, {}, tonumber(after) or 0
if ARGV[10] == '1' then
  for n = 11, #ARGV do heads[#heads + 1] = ARGV[n] end
else
  for _, key in ipairs({ key_job(entity_id), key_kind(entity_id), key_lane(entity_id), key_principal(entity_id),
    key_quorum(entity_id), key_task(entity_id),
    key_token(entity_id) }) do
    local last = redis.call('HGET', key, 'last_event')
    if last then heads[#heads + 1] = last end
  end
end
while heads[1] and #found < most do
  local number = table.remove(heads, 1)
  if tonumber(number) and tonumber(number) > floor then
    local event = redis.call('XRANGE', key_history(), number .. '-0', number .. '-0')[1]
    if event then
      found[#found + 1] = event
      for n = 1, #event[2], 2 do
        if event[2][n] == 'prev' and event[2][n + 1] ~= '' then table.insert(heads, 1, event[2][n + 1]) end
      end
    end
  end
end
return { found, heads }
