-- Every script begins with this. KEYS[1] is the namespace's hash tag with the
-- prefix before it; all keys are made from it, so all are in one slot. Why it is
-- not the only one see declared in keys.go.
local B, call = KEYS[1] .. ':', redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2] -- µs; doubles are exact below 2^53
local ended = false -- records of the leases that this script found to be over

local function answer(code, ...) return {ended, code, now, ...} end

local function corrupt(what) error({err = 'CORRUPT ' .. what}) end
