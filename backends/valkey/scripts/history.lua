-- Answers the records whose events are older than the cursor (epoch, number),
-- newest first, and how many events of the key are newer than the first one.
local kid, e, n, limit = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
local rec = load(kid)
if not rec then return answer('history', 0, 0, 0) end
local _, _, _, _, _, _, _, hist, events = dyn(rec)
local out, skipped = {}, 0

local function take(r)
  local ae, an = struct.unpack('>I8I8', r, #r - 51)
  if e ~= 0 and (ae > e or (ae == e and an >= n)) then
    skipped = skipped + (r:byte(2) == 2 and 1 or 2)
  else
    out[#out + 1] = r
  end
end

take(rec)
while #out <= limit do
  local nonce = before(rec)
  rec = nonce and call('GET', B .. 'l:' .. nonce)
  if not rec then break end -- and those before it are older
  dyn(rec)
  take(rec)
end
return answer('history', hist, events, skipped, unpack(out))
