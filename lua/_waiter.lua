-- Who waits for work. A waiter stands in `waiting` of every kind it asks for ('' is any) and sleeps on a list of its own;
-- waking it takes it out of all of them and puts a sign on its list. The work itself stays until it is claimed.
local function withdraw(waiter)
  local facts = redis.call('HGETALL', key_waiter(waiter))
  for n = 1, #facts, 2 do
    if facts[n]:sub(1, 5) == 'kind:' then redis.call('ZREM', key_waiting(facts[n]:sub(6)), waiter) end
    if facts[n] == 'watches' then redis.call('ZREM', key_watched(), facts[n + 1]) end
  end
  redis.call('DEL', key_waiter(waiter))
end

local function sign(waiter)
  redis.call('LPUSH', key_wake(waiter), '1')
  redis.call('PEXPIRE', key_wake(waiter), WAIT_LOOK)
end
