-- The only clock: the server's own, read once, in whole milliseconds.
local TIME = redis.call('TIME')
local now = TIME[1] * 1000 + math.floor(TIME[2] / 1000)
