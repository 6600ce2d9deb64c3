-- full tells whether the owner has as many leases as it may have.
local function full(limit, fixed)
  if limit == 0 then return false end
  local owner = 'o' .. fixed:sub(25, 36)
  while call('ZLEXCOUNT', B .. 'i', '[' .. owner, '(' .. owner .. '\255') >= limit do
    -- Those whose time is over do not count.
    if sweep(100) == 0 then return true end
  end
  return false
end

-- archive puts the latest lease of a key, which is over, among the older ones.
local function archive(kid, rec, hist, events)
  local keep = recorded(rec)
  local _, _, _, _, _, _, _, h, _, idem = dyn(rec)
  keep = math.ceil((keep + math.max(h, idem) - now) / 1000) + 1
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

-- serve gives a free key to the first place that a living gateway stands at.
-- The gateway takes the grant by trying; what nobody takes is undone.
function serve(kid)
  if call('EXISTS', B .. 'q:' .. kid) == 0 then return end
  while true do
    local scope, place = first(kid)
    if not scope then return end
    local r = call('HGET', B .. 'r:' .. kid, scope)
    if not r then corrupt('request') end
    local ttl, hist, events, idem, most, n = struct.unpack('>I8I8I4I8I4I4', r)
    local who, head, fixed = r:sub(37, 36 + n), r:sub(37 + n, 86 + n), r:sub(87 + n)
    local why = full(most, fixed) and 'leases_per_owner'
    drop(kid, scope, place)
    if not why then
      if grant(kid, scope, place:sub(1, 16), head, fixed, ttl, hist, events, idem, call('GET', B .. 'k:' .. kid)) then
        call('ZADD', B .. 'u', now, kid .. scope)
        call('HSET', B .. 'v', kid .. scope, struct.pack('>I4', #who) .. who .. place)
        tell(scope, place)
        return
      end
      why = 'exhausted'
    end
    call('SET', B .. 'f:' .. scope, why, 'PX', 5000)
    tell(scope, place)
  end
end

-- untake undoes a grant that nobody took.
local function untake(kid, scope, who)
  call('ZREM', B .. 'u', kid .. scope)
  call('HDEL', B .. 'v', kid .. scope)
  local prior = call('GET', B .. 'a:' .. scope)
  if not prior then return end
  call('DEL', B .. 'a:' .. scope)
  local rec = load(kid)
  if rec and rec:byte(2) == 2 and rec:sub(19, 34) == prior:sub(19, 34) then
    local _, _, _, _, _, _, _, hist, events, idem = dyn(rec)
    finish(kid, rec, 4, now, who, hist, events, idem)
    serve(kid)
  end
end

-- untaken takes an entry of v apart: who undoes the grant, and the place.
local function untaken(v)
  local n = struct.unpack('>I4', v)
  return v:sub(5, 4 + n), v:sub(5 + n)
end
