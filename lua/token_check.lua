#!lua flags=no-writes
-- Tell whether the caller may call at all, and as whom.
-- Request: nothing
-- Reply:   client_id, conductor ('1' or ''), star scope ('1' or '')
-- Refuses: UNAUTHENTICATED
-- Touches: token, principal
-- Cost:    O(1)
-- Again:   what holds then
-- Pieces:  clock, call, token, caller

-- check
local live, conductor, star = caller('*')
if not live then return refuse('UNAUTHENTICATED') end
return { client_id, conductor and '1' or '', star and '1' or '' }
