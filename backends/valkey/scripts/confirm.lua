-- Notes that replicas confirmed a grant of which a copy of its request was told:
-- it can no longer be undone, unless it has been.
local kid, scope, nonce = ARGV[1], ARGV[2], ARGV[3]
local prior, about = replay(kid, scope)
if not prior or prior:sub(19, 34) ~= nonce then return answer('gone') end
call('SETRANGE', B .. 'a:' .. scope, 17, '\1')
return answer('acquired', about, 1)
