-- The caller has gone: nobody is there to take a grant.
local kid, scope, gw, n = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0
local place = call('HGET', B .. 'p:' .. kid, scope)
if place then queue().detach(kid, scope, place, gw, n) end
local v = call('HGET', B .. 'v', kid .. scope)
if v then
  local who, at = queue().untaken(v)
  local rest = ''
  for i = 33, #at, 19 do
    if at:sub(i, i + 10) ~= gw or struct.unpack('>I8', at, i + 11) > n then rest = rest .. at:sub(i, i + 18) end
  end
  if rest == '' then
    queue().untake(kid, scope, who)
  else
    call('HSET', B .. 'v', kid .. scope, v:sub(1, 4 + #who) .. at:sub(1, 32) .. rest)
  end
end
return queue().conflict(kid, scope, load(kid))
