-- One event of one entity. Each names the entity's previous event, and the entity keeps its last: a chain in one
-- feed. All events have the same fields in the same order, so that the stream stores the names once.
-- The counter and the feed are written before anything else, for only the feed can refuse (a number not above its
-- last). Should the counter's key be lost, it goes on from the feed.
local function next_event(how_many)
  how_many = how_many or 1
  local number = redis.call('HINCRBY', key_profile(), 'seq', how_many)
  if number > how_many then return number end
  local last = redis.call('XREVRANGE', key_history(), '+', '-', 'COUNT', 1)[1]
  if not last then return number end
  return redis.call('HINCRBY', key_profile(), 'seq', tonumber(last[1]:match('^%d+')))
end

local function record(number, event, entity_id, facts)
  redis.call('XADD', key_history(), whole(number) .. '-0',
    'event', event, 'entity_id', entity_id, 'project', facts.project or '',
    'actor', client_id, 'holder', holder, 'at', whole(now),
    'from', facts.from or '', 'to', facts.to or '',
    'attempts', facts.attempts or '', 'fence', facts.fence or '',
    'request_id', request_id, 'reason', facts.reason or '', 'digest', facts.digest or '',
    'prev', facts.prev or '')
  return whole(number)
end
