-- archive puts the latest lease of a key, which is over, among the older ones.
local function archive(kid, rec, hist, events)
  local at = recorded(rec)
  local _, _, _, expires, _, _, _, h, _, idem = dyn(rec)
  local keep = math.ceil((at + remembered(h, idem, expires, at) - now) / 1000) + 1
  if keep <= 0 then return end
  local nonce = rec:sub(19, 34)
  call('SET', B .. 'l:' .. nonce, rec, 'PX', keep)
  if call('LPUSH', B .. 'h:' .. kid, nonce) > events / 2 + 1 then
    call('LTRIM', B .. 'h:' .. kid, 0, math.ceil(events / 2))
  end
  call('PEXPIRE', B .. 'h:' .. kid, math.ceil(hist / 1000) + 1)
end

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
    call('ZADD', B .. 'i', 0, 'a' .. kid, 0, 'o' .. fixed:sub(25, 36) .. kid, 0, 't' .. fixed:sub(37, 44) .. kid)
  else
    call('ZADD', B .. 'i', 0, 'a' .. kid, 0, 'o' .. fixed:sub(25, 36) .. kid, 0, 't' .. fixed:sub(37, 44) .. kid, 0, 'j' .. job .. kid)
  end
  if rec then archive(kid, rec, hist, events) end
  if token > now then
    floor = token
    savemeta()
  end
  local body = head .. struct.pack(DYN, token, now, now, now + ttl, ttl, 0, 0, hist, events, idem) .. fixed
  local e, n = event(body, '')
  local granted = body .. struct.pack('>I8I8I8I8', e, n, 0, 0)
  call('SET', B .. 'k:' .. kid, granted)
  call('SET', B .. 'a:' .. scope, '\1' .. print .. '\0' .. head:sub(19, 34), 'PX', math.ceil((idem + ttl) / 1000))
  return granted
end
