-- Scans the ended leases of a state in the order in which they are forgotten:
-- state, instant and member after which to begin, then as list.lua.
local z, score, after, limit, look, before = B .. 'z' .. ARGV[1], ARGV[2], ARGV[3], ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0

local function matches(rec)
  for i = 7, #ARGV, 2 do
    local at = ARGV[i] + 0
    if rec:sub(at, at + #ARGV[i + 1] - 1) ~= ARGV[i + 1] then return false end
  end
  return before == 0 or struct.unpack('>I8', rec, 75) < before
end

if queue().sweep(200) == 200 then return answer('again') end
local from = 0
if after ~= '' then
  -- Members of one instant are in the order of their bytes.
  local rank = call('ZRANK', z, after)
  from = rank and rank + 1
  if not from then
    from = call('ZCOUNT', z, '-inf', '(' .. score)
    local same = call('ZRANGEBYSCORE', z, score, score)
    for i = 1, #same do
      if same[i] <= after then from = from + 1 end
    end
  end
end
local members = call('ZRANGE', z, from, from + look - 1, 'WITHSCORES')
local out, last, at = {}, '', ''
for i = 1, #members, 2 do
  local kid, nonce = members[i]:sub(1, 22), members[i]:sub(23)
  local rec = find(kid, nonce)
  if rec and matches(rec) then out[#out + 1] = rec end
  if #out == limit or i + 1 == 2 * look then
    last, at = members[i], members[i + 1]
    break
  end
end
if last ~= '' and call('ZREVRANGE', z, 0, 0)[1] == last then last, at = '', '' end
return answer('list', last, at, unpack(out))
