-- The caller has gone: nobody is there to take a grant.
local kid, scope, gw, n = ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0
local rec = load(kid)
local place = call('HGET', B .. 'p:' .. kid, scope)
if place then
  place = detach(kid, scope, place, gw, n)
  if not (rec and rec:byte(2) == 2) and #place == 32 then
    if call('ZSCORE', B .. 'u', kid .. scope) then drop(kid, scope, place) end -- its turn had come
    serve(kid)
  end
end
return conflict(kid, scope, rec)
