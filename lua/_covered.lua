-- The pairs of project and kind where covered jobs stand that have attempts left, at most 1,000; and whether there may
-- be more. A star walks the index of projects, another the projects of its grants.
local pairs_, more_pairs = {}, false

local function add_pairs(project)
  for _, member in ipairs(redis.call('ZRANGE', key_kinds(project), 0, 1000)) do
    if #pairs_ == 1000 then more_pairs = true return end
    pairs_[#pairs_ + 1] = { project, member:sub(SEQ + 1) }
  end
end

local function find_pairs()
  if star then
    for _, member in ipairs(redis.call('ZRANGE', key_projects(), 0, 999)) do
      add_pairs(member:sub(SEQ + 1))
      if more_pairs then return end
    end
    more_pairs = redis.call('ZCARD', key_projects()) > 1000
    return
  end
  local facts = redis.call('HGETALL', key_principal(client_id))
  for n = 1, #facts, 2 do
    if facts[n]:sub(1, 6) == 'grant:' then add_pairs(facts[n]:sub(7)) end
    if more_pairs then return end
  end
end

-- The first 500 on each side of the present of those with no attempt left, covered or not, as pairs of job_id and
-- instant; and whether there are more. That is told of all projects: it says no more than how many of them there are.
local function find_spent()
  local found = {}
  for _, range in ipairs({ { '-inf', whole(now) }, { '(' .. whole(now), '+inf' } }) do
    local spent = redis.call('ZRANGE', key_spent(), range[1], range[2], 'BYSCORE', 'LIMIT', 0, 500, 'WITHSCORES')
    for n = 1, #spent, 2 do found[#found + 1] = { spent[n], tonumber(spent[n + 1]) } end
  end
  return found, redis.call('ZCARD', key_spent()) > #found
end
