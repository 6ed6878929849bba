-- One event of one entity. Each names the entity's previous event, and the entity keeps its last: a chain in one
-- feed. All events have the same fields in the same order, so that the stream stores the names once.
-- The feed is written before anything else, for it alone can refuse (an id that is not above the last).
local function next_event(how_many) return redis.call('HINCRBY', key_profile(), 'seq', how_many or 1) end

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
