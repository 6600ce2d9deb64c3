local kid = ARGV[1]
local rec = load(kid)
if not rec then return answer('key', false, false, 0) end
local _, _, _, _, _, _, _, hist = dyn(rec)
local n = call('ZCARD', B .. 'q:' .. kid)
if rec:byte(2) ~= 2 then return answer('key', false, visible(rec, hist) and rec, n) end
local last = before(rec)
return answer('key', rec, last and older(last, rec) or false, n)
