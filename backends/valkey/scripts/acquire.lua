local kid, scope, print, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[11]
local p = B .. 'p:' .. kid

local prior = call('GET', B .. 'a:' .. scope)
if prior then
  if prior:sub(2, 17) ~= print then return answer('reused') end
  local rec = answered(kid, prior)
  -- From here on somebody knows of the grant: it can no longer be undone.
  if prior:byte(18) == 0 then call('SETRANGE', B .. 'a:' .. scope, 17, '\1') end
  return answer('acquired', rec, 1)
end

local function full()
  local limit = tonumber(ARGV[10])
  if limit == 0 then return false end
  local owner = 'o' .. ARGV[5]:sub(25, 36)
  while call('ZLEXCOUNT', B .. 'i', '[' .. owner, '(' .. owner .. '\255') >= limit do
    -- Those whose time is over do not count.
    if sweep(100) == 0 then return true end
  end
  return false
end

-- room makes place for a newcomer. Waiters who are away keep their places only
-- as long as nobody who is there needs them.
local function room()
  local limit, q = tonumber(ARGV[12]), B .. 'q:' .. kid
  if limit == 0 or call('ZCARD', q) < limit then return true end
  local oldest, left, place
  local all = call('HGETALL', p)
  for i = 1, #all, 2 do
    if #all[i + 1] == 32 then
      local at = struct.unpack('>I8', all[i + 1], 25)
      if not left or at < left then oldest, left, place = all[i], at, all[i + 1] end
    end
  end
  if not oldest then return false end
  drop(kid, oldest, place)
  return true
end

local rec = load(kid)
if rec and rec:sub(3, 18) ~= ARGV[4]:sub(3, 18) then corrupt('key') end
local mine = call('HMGET', p, scope, 'n')
local place, queued = mine[1], mine[2]
if place and #place == 32 and now - struct.unpack('>I8', place, 25) > struct.unpack('>I8', place, 17) then
  drop(kid, scope, place) -- forgotten
  place = false
end
if place and place:sub(1, 16) ~= print then return answer('reused') end
if not place and full() then return answer('quota', 'leases_per_owner') end

local function archive(hist, events)
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

local function grant()
  meta()
  local token = math.max(now, floor + 1)
  if rec then token = math.max(token, dyn(rec) + 1) end
  if token > MAXTOKEN then return answer('exhausted') end
  local ttl, hist, events, idem = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9] + 0
  local fixed = ARGV[5]
  call('ZADD', B .. 'x', now + ttl, kid)
  local job = fixed:sub(45, 52)
  if job == '\0\0\0\0\0\0\0\0' then
    call('ZADD', B .. 'i', 0, 'a' .. kid, 0, 'o' .. fixed:sub(25, 36) .. kid, 0, 't' .. fixed:sub(37, 44) .. kid)
  else
    call('ZADD', B .. 'i', 0, 'a' .. kid, 0, 'o' .. fixed:sub(25, 36) .. kid, 0, 't' .. fixed:sub(37, 44) .. kid, 0, 'j' .. job .. kid)
  end
  if rec then archive(hist, events) end
  if place then
    drop(kid, scope, place)
    if #place > 51 then tell(scope, place) end -- its copies elsewhere
  end
  if token > now then
    floor = token
    savemeta()
  end
  local body = ARGV[4] .. struct.pack(DYN, token, now, now, now + ttl, ttl, 0, 0, hist, events, idem) .. fixed
  local e, n = event(body, '')
  local granted = body .. struct.pack('>I8I8I8I8', e, n, 0, 0)
  call('SET', B .. 'k:' .. kid, granted)
  call('SET', B .. 'a:' .. scope, '\1' .. print .. '\0' .. ARGV[4]:sub(19, 34), 'PX', math.ceil((idem + ttl) / 1000))
  return answer('acquired', granted, 0)
end

if not (rec and rec:byte(2) == 2) then
  local turn
  if queued then
    turn = first(kid)
    place = place and call('HGET', p, scope)
  end
  if not turn or turn == scope then
    if place and full() then
      drop(kid, scope, place)
      serve(kid)
      return answer('quota', 'leases_per_owner')
    end
    return grant()
  end
  serve(kid) -- it may not have been told
end

if mode == '1' then
  if not place then
    if not room() then return answer('quota', 'waiters_per_key') end
    local q = B .. 'q:' .. kid
    local last = call('ZRANGE', q, -1, -1, 'WITHSCORES')[2]
    place = print .. struct.pack('>I8I8', ARGV[9] + 0, 0)
    call('ZADD', q, last and math.max(now, last + 1) or now, scope)
  end
  call('ZADD', B .. 'g', 'GT', now + ARGV[15] * 1000, ARGV[13])
  attach(kid, scope, place, ARGV[13], ARGV[14] + 0)
  return answer('parked')
end
if mode == '2' and place and ARGV[14] ~= '0' then detach(kid, scope, place, ARGV[13], ARGV[14] + 0) end
return conflict(kid, scope, rec)
