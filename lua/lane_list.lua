#!lua flags=no-writes
-- List the lanes the caller may see, newest first.
-- Request: filters: quorum_id, 'project' when the next one filters, project, 'state' when the next one filters, state; limit
-- Reply:   a list of lanes, each the eleven facts of an entry in the contract's order
-- Refuses: UNAUTHENTICATED
-- Touches: token, principal, joined, quorum, lane, lanes
-- Cost:    O(5 Q + L log Q): Q quorums the caller joined (one scope for conductors and stars), L the limit
-- Again:   the lanes as they are then
-- Pieces:  clock, call, token
local has_quorum, quorum_id, has_project, project, has_state, state, limit =
  ARGV[7] == 'quorum_id', ARGV[8], ARGV[9] == 'project', ARGV[10], ARGV[11] == 'state', ARGV[12], tonumber(ARGV[13])
local FACTS = { 'quorum_id', 'project', 'state', 'review_state', 'merge_state', 'assignee', 'task_id',
  'result_commit', 'created_at', 'changed_at' }

-- check
local principal = redis.call('HMGET', key_principal(client_id), 'standing', 'conductor', 'grant:*')
if principal[1] ~= 'live' then return refuse('UNAUTHENTICATED') end
local sees_all = principal[2] == '1' or principal[3]

-- Give the scopes to read: pairs of a scope and its name.
local function scopes()
  local quorum_project = has_quorum and redis.call('HGET', key_quorum(quorum_id), 'project')
  if sees_all then
    if not has_quorum then return { has_project and { 'project', project } or { 'all', '' } } end
    local fits = quorum_project and (not has_project or quorum_project == project)
    return fits and { { 'quorum', quorum_id } } or {}
  end
  local joined, found, covered = redis.call('HGETALL', key_joined(client_id)), {}, {}
  for n = 1, #joined, 2 do
    local quorum, of_project = joined[n], joined[n + 1]
    if (not has_quorum or quorum == quorum_id) and (not has_project or of_project == project) then
      if covered[of_project] == nil then
        covered[of_project] = redis.call('HEXISTS', key_principal(client_id), 'grant:' .. of_project) == 1
      end
      if covered[of_project] then found[#found + 1] = { 'quorum', quorum } end
    end
  end
  return found
end

-- A heap of index heads, newest on top: each is { seq, lane_id, index, rank }.
local heap = {}

local function sink(n)
  while true do
    local child = 2 * n
    if not heap[child] then return end
    if heap[child + 1] and heap[child + 1][1] > heap[child][1] then child = child + 1 end
    if heap[n][1] >= heap[child][1] then return end
    heap[n], heap[child] = heap[child], heap[n]
    n = child
  end
end

local function head(index, rank)
  local found = redis.call('ZRANGE', index, rank, rank, 'REV', 'WITHSCORES')
  return found[1] and { tonumber(found[2]), found[1], index, rank }
end

for _, scope in ipairs(scopes()) do
  for _, of_state in ipairs(has_state and { state } or { 'open', 'in_progress', 'done', 'failed', 'cancelled' }) do
    heap[#heap + 1] = head(key_lanes(of_state, scope[1], scope[2]), 0)
  end
end
for n = math.floor(#heap / 2), 1, -1 do sink(n) end

local lanes = {}
while heap[1] and #lanes < limit do
  local top = heap[1]
  local found = redis.call('HMGET', key_lane(top[2]), unpack(FACTS))
  local lane = { top[2] }
  for n = 1, #FACTS do lane[n + 1] = found[n] or '' end
  if found[1] then lanes[#lanes + 1] = lane end
  local following, last = head(top[3], top[4] + 1), nil
  if not following then last = table.remove(heap) end
  if heap[1] then
    heap[1] = following or last
    sink(1)
  end
end
return lanes
