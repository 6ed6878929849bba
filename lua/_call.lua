-- Who calls, and how numbers and refusals are written. Every move begins with these six arguments.
local client_id, holder, request_id, slot, call, fence =
  ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local function whole(number) return string.format('%.0f', number) end

-- The server counts an error under its first word only when a second one follows.
local function refuse(code) return redis.error_reply(code .. ' refused') end
