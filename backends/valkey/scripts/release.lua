return conclude('\3', 4, function(rec)
  if rec:sub(35, 50) ~= ARGV[9] then return 'owner' end
  if dyn(rec) ~= ARGV[10] + 0 then return 'stale' end
end)
