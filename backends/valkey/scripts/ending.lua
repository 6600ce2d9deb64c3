-- told is an answer about a lease that brings the turns of the gateway too.
local function told(code, rec) return answer(code, rec or false, 0, unpack(mine or {})) end

-- conclude ends a lease for release and revoke. refused says what the caller
-- presented wrongly, if anything. Arguments: key id, scope, fingerprint, nonce,
-- who ends it, retention and token, holder, gateway.
local function conclude(verb, state, refused)
  local hist, events, idem, token = struct.unpack('>I8I4I8I8', ARGV[6])
  local kid, scope, print, nonce = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  local prior, about = replay(kid, scope)
  if prior then
    if prior:sub(2, 17) ~= print then return answer('reused') end
    return answer('done', about, 1)
  end
  self = ARGV[8]
  local rec = find(kid, nonce)
  if not rec then return told('none') end
  local wrong = refused(rec, token)
  if wrong then return told(wrong) end
  if rec:byte(2) ~= 2 then return told('over', rec) end
  rec = finish(kid, rec, state, now, ARGV[5], hist, events, idem)
  call('SET', B .. 'a:' .. scope, verb .. print .. '\1' .. nonce, 'PX', math.ceil(idem / 1000))
  serve(kid)
  return told('done', rec)
end
