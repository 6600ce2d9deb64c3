return conclude('\3', 4, function(rec, token)
  if rec:sub(35, 50) ~= ARGV[7] then return 'owner' end
  if dyn(rec) ~= token then return 'stale' end
end)
