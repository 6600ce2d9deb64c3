-- grant gives a free key to whoever asks with scope and fingerprint. It returns
-- the record, or nothing when no token is left. rec is the key's latest record.
local function grant(kid, scope, print, head, fixed, ttl, hist, events, idem, rec)
  meta()
  local token = math.max(now, floor + 1)
  if rec then token = math.max(token, dyn(rec) + 1) end
  if token > MAXTOKEN then return nil end
  call('ZADD', B .. 'x', now + ttl, kid)
  local job = fixed:sub(45, 52)
  if job == '\0\0\0\0\0\0\0\0' then
    call('ZADD', B .. 'i', 0, 'o' .. fixed:sub(25, 36) .. kid, 0, 't' .. fixed:sub(37, 44) .. kid)
  else
    call('ZADD', B .. 'i', 0, 'o' .. fixed:sub(25, 36) .. kid, 0, 't' .. fixed:sub(37, 44) .. kid, 0, 'j' .. job .. kid)
  end
  -- The lease before it stays for as long as it was to be kept anyway.
  local chain = NONE .. '\0\0\0\0'
  if rec then
    local nonce = rec:sub(19, 34)
    call('RENAME', B .. 'k:' .. kid, B .. 'l:' .. nonce)
    chain = nonce .. struct.pack('>I4', struct.unpack('>I4', rec, #rec - 3) + 1)
  end
  if token > now then
    floor = token
    savemeta()
  end
  local body = head .. struct.pack(DYN, token, now, now, now + ttl, ttl, 0, 0, hist, events, idem) .. fixed
  local e, n = event(body, '')
  local granted = body .. struct.pack('>I8I8I8I8', e, n, 0, 0) .. chain
  call('SET', B .. 'k:' .. kid, granted)
  call('SET', B .. 'a:' .. scope, '\1' .. print .. '\0' .. head:sub(19, 34), 'PX', math.ceil((idem + ttl) / 1000))
  return granted
end
