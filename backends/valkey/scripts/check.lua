local rec = load(ARGV[1])
if rec then
  local _, _, _, _, _, _, _, hist = dyn(rec)
  rec = visible(rec, hist) and rec
end
return answer('lease', rec)
