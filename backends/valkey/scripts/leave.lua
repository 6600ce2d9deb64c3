-- The caller has gone: nobody is there to take a grant.
local kid, scope, gw, n = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0
queue().leave(kid, scope, gw, n)
return queue().conflict(kid, scope, load(kid))
