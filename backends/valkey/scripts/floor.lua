meta()
local above = ARGV[1] + 0
if above > floor then
  -- The store may have gone back: its events get numbers of their own.
  floor, epoch = above, math.max(epoch + 1, math.floor(now / 1000))
  savemeta()
end
return answer('ok')
