-- Renews leases of one holder, each by itself: kid, scope, fingerprint, nonce,
-- token. An answer is code, record, replayed, and what the renewal set.
local holder, ttl, hist, events, keep, cause = ARGV[1], ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, ARGV[6]

local function renew(kid, scope, print, nonce, token)
  local prior, rec = replay(kid, scope)
  if prior then
    if prior:sub(2, 17) ~= print then return {'reused'} end
    if rec:byte(2) ~= 2 then return {'over', rec, 1} end
    return {'renewed', rec, 1, prior:sub(35)}
  end
  rec = find(kid, nonce)
  if not rec then return {'none'} end
  if rec:sub(35, 50) ~= holder then return {'owner'} end
  local tok, acquired, _, _, last, renewals, _, _, _, idem = dyn(rec)
  if tok ~= token + 0 then return {'stale'} end
  if rec:byte(2) ~= 2 then return {'over', rec, 0} end
  local expires = math.min(now + (ttl == 0 and last or ttl), acquired + struct.unpack('>I8', rec, 123))
  local given = expires - now
  call('ZADD', B .. 'x', expires, kid)
  rec = rec:sub(1, 50) ..
    struct.pack(DYN, tok, acquired, now, expires, given, renewals + 1, 0, hist, events, math.max(keep, idem)) .. rec:sub(123)
  event(rec:sub(1, -53), cause)
  call('SET', B .. 'k:' .. kid, rec)
  local first = struct.pack('>I8I8I8I4', now, expires, given, renewals + 1)
  call('SET', B .. 'a:' .. scope, '\2' .. print .. '\1' .. nonce .. first, 'PX', math.ceil((keep + given) / 1000))
  call('PEXPIRE', B .. 'a:' .. rec:sub(131, 146), math.ceil((idem + given) / 1000), 'GT')
  return {'renewed', rec, 0, first}
end

local all = {}
-- Caught and raised again an error would lose its code.
if #ARGV == 11 then all[1] = renew(ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]) end
for i = 7, #ARGV > 11 and #ARGV or 0, 5 do
  local ok, res = pcall(renew, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
  all[#all + 1] = ok and res or {'failed'}
end
return answer('renewals', unpack(all))
