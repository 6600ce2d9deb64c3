-- Answers the records whose events are older than the cursor (epoch, number),
-- newest first, and how many events of the key are newer than the first one.
local kid, e, n, limit = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local rec = load(kid)
if not rec then return answer('history', 0, 0, 0) end
local _, _, _, _, _, _, _, hist, events = dyn(rec)
local out, skipped, count = {}, 0, 0

local function take(r)
  local ae, an = struct.unpack('>I8I8', r, #r - 31)
  if e ~= 0 and (ae > e or (ae == e and an >= n)) then
    skipped = skipped + (r:byte(2) == 2 and 1 or 2)
  else
    out[#out + 1] = r
  end
end

take(rec)
while #out <= limit do
  local nonces = call('LRANGE', B .. 'h:' .. kid, count, count + 127)
  if #nonces == 0 then break end
  count = count + #nonces
  for i = 1, #nonces do
    local r = call('GET', B .. 'l:' .. nonces[i])
    if not r then break end -- and those after it are older
    take(r)
    if #out > limit then break end
  end
end
return answer('history', hist, events, skipped, unpack(out))
