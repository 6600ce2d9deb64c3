-- Takes back a grant that nobody is there to take, unless somebody knows of it.
local kid, scope, nonce, tail = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local prior = call('GET', B .. 'a:' .. scope)
local rec = load(kid)
if not rec or rec:sub(19, 34) ~= nonce then return queue().conflict(kid, scope, rec) end
if prior and prior:sub(19, 34) == nonce then
  if prior:byte(18) ~= 0 then return answer('acquired', rec, 0) end
  call('DEL', B .. 'a:' .. scope)
end
if rec:byte(2) == 2 then
  local _, _, _, _, _, _, _, hist, events, idem = dyn(rec)
  finish(kid, rec, 4, now, tail, hist, events, idem)
  serve(kid)
  rec = load(kid)
end
return queue().conflict(kid, scope, rec)
