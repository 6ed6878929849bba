-- Composed scripts, as the server loads them. A shared piece may hold more than one move uses.
std = "lua51"
globals = { "redis" }
read_globals = { "KEYS", "ARGV" }
max_line_length = 180
self = false
ignore = {
  "211/client_id", "211/holder", "211/request_id", "211/slot", "211/call", "211/fence", "211/whole", "211/refuse",
  "211/caller", "211/recall", "211/remember", "211/record", "211/next_event", "211/stand", "211/restand",
  "211/read_lane", "211/move_lane", "211/each_scope", "211/entry", "211/mend_above", "211/carry_up", "211/place", "211/earliest",
}
