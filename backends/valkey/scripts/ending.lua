-- conclude ends a lease for release and revoke. refused says what the caller
-- presented wrongly, if anything. Arguments: key id, scope, fingerprint, nonce,
-- who ends it, retention and token, holder.
local function conclude(verb, state, refused)
  local hist, events, idem, token = struct.unpack('>I8I4I8I8', ARGV[6])
  local kid, scope, print, nonce = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
  local prior, about = replay(kid, scope)
  if prior then
    if prior:sub(2, 17) ~= print then return answer('reused') end
    return answer('done', about, 1)
  end
  local rec = find(kid, nonce)
  if not rec then return answer('none') end
  local wrong = refused(rec, token)
  if wrong then return answer(wrong) end
  if rec:byte(2) ~= 2 then return answer('over', rec) end
  rec = finish(kid, rec, state, now, ARGV[5], hist, events, idem)
  call('SET', B .. 'a:' .. scope, verb .. print .. '\1' .. nonce, 'PX', math.ceil(idem / 1000))
  serve(kid)
  return answer('done', rec, 0)
end
