-- Answers remembered by request id. A record is a line: request id, instant it is forgotten, digest of the call,
-- answer. A library's id, `~client.slot.n`, has a slot of its own where the next call replaces the last; a
-- caller's ids share 4,096 shelves a principal, each with a bounded number of lines.
local shelf = slot:sub(1, 4) == 'ids-'
local remembered = false

-- Give the remembered answer, or nil; or a refusal, when the id belongs to another call.
local function recall()
  if slot == '' then return nil end
  remembered = redis.call('GET', key_replay(slot, client_id))
  if not remembered then return nil end
  local mine = tonumber(request_id:match('%.(%d+)$'))
  for id, forgotten_at, digest, answer in remembered:gmatch('(%S+) (%d+) (%S+) (%S*)\n') do
    if id == request_id then
      if tonumber(forgotten_at) > now then
        if digest ~= call then return nil, refuse('REQUEST_ID_REUSED') end
        return answer
      end
    elseif not shelf and tonumber(id:match('%.(%d+)$')) > mine then
      return nil, refuse('REQUEST_ID_REUSED') -- a copy that the network held back, of a call long since answered
    end
  end
end

local function remember(answer)
  if slot == '' then return end
  local lines, window = {}, REPLAY_LIBRARY
  if shelf then
    window = REPLAY_CALLER
    for line, forgotten_at in (remembered or ''):gmatch('(%S+ (%d+) %S+ %S*\n)') do
      if tonumber(forgotten_at) > now then lines[#lines + 1] = line end
    end
    while #lines >= REPLAY_SHELF do table.remove(lines, 1) end
  end
  lines[#lines + 1] = request_id .. ' ' .. whole(now + window) .. ' ' .. call .. ' ' .. answer .. '\n'
  redis.call('SET', key_replay(slot, client_id), table.concat(lines), 'PX', window)
end
