-- Scans a stretch of an index: prefix, rest of the member after which to begin, how many to
-- return and how many to look at, expiry bound, then position and text of each
-- filter in the record.
local prefix, after, limit, look, before = ARGV[1], ARGV[2], ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0

local function matches(rec)
  for i = 6, #ARGV, 2 do
    local at = ARGV[i] + 0
    if rec:sub(at, at + #ARGV[i + 1] - 1) ~= ARGV[i + 1] then return false end
  end
  return before == 0 or struct.unpack('>I8', rec, 75) < before
end

local from = after == '' and '[' .. prefix or '(' .. prefix .. after
local members = call('ZRANGEBYLEX', B .. 'i', from, '(' .. prefix .. '\255', 'LIMIT', 0, look)
local out, last = {}, ''
for i = 1, #members do
  local rec = call('GET', B .. 'k:' .. members[i]:sub(-22))
  if rec then
    dyn(rec)
    if rec:byte(2) == 2 and struct.unpack('>I8', rec, 75) > now and matches(rec) then out[#out + 1] = rec end
  end
  if #out == limit or i == look then
    last = members[i]:sub(#prefix + 1)
    break
  end
end
-- Whether anything follows is only known by looking.
if last ~= '' and #call('ZRANGEBYLEX', B .. 'i', '(' .. prefix .. last, '(' .. prefix .. '\255', 'LIMIT', 0, 1) == 0 then last = '' end
return answer('list', last, unpack(out))
