-- Who looks: everything is covered for a star and for an operator, else the projects of its very grants. What is not
-- covered is passed over as if it were not there. An operator who presents a token is bound by its principal's grants.
local is_live, _, star = caller('*')
if ARGV[7] == 'operator' and not presented then is_live, star = true, true end
if not is_live then return refuse('UNAUTHENTICATED') end
local known = {}

local function covers(project)
  if star then return true end
  if known[project] == nil then
    local _, _, covered = caller(project)
    known[project] = covered or false
  end
  return known[project]
end
