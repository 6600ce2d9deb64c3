-- attach notes that the gateway has a caller at the place. n orders what a
-- gateway says of one place, so that a late goodbye cannot cut off a caller who
-- came after it.
local function attach(kid, scope, place, gw, n)
  local q, p = B .. 'q:' .. kid, B .. 'p:' .. kid
  local head, rest, at = place:sub(1, 24) .. struct.pack('>I8', 0), place:sub(33), nil
  for i = 1, #rest, 19 do
    if rest:sub(i, i + 10) == gw then at = i end
  end
  if at then
    n = math.max(n, (struct.unpack('>I8', rest, at + 11)))
    rest = rest:sub(1, at - 1) .. rest:sub(at + 19)
  end
  if #place == 32 then
    call('HINCRBY', p, 'n', 1)
    call('INCR', B .. 'n')
    call('PERSIST', p)
    call('PERSIST', q)
    call('PERSIST', B .. 'r:' .. kid)
  end
  call('HSET', p, scope, head .. rest .. gw .. struct.pack('>I8', n))
  if not at then call('SADD', B .. 'y:' .. gw, kid .. scope) end
end

-- detach takes the gateway's callers away from the place, which is kept.
local function detach(kid, scope, place, gw, n)
  local q, p = B .. 'q:' .. kid, B .. 'p:' .. kid
  for i = 33, #place, 19 do
    if place:sub(i, i + 10) == gw then
      if struct.unpack('>I8', place, i + 11) > n then return place end
      local rest = place:sub(33, i - 1) .. place:sub(i + 19)
      call('SREM', B .. 'y:' .. gw, kid .. scope)
      if rest == '' then
        absent(kid, p, place)
        if call('HGET', p, 'n') == '0' then
          local keep = math.ceil(struct.unpack('>I8', place, 17) / 1000) + 1
          call('PEXPIRE', p, keep)
          call('PEXPIRE', q, keep)
          call('PEXPIRE', B .. 'r:' .. kid, keep)
        end
        place = place:sub(1, 24) .. struct.pack('>I8', now)
      else
        place = place:sub(1, 32) .. rest
      end
      call('HSET', p, scope, place)
      return place
    end
  end
  return place
end

-- position counts those present up to the scope's place; not further back than
-- it is worth.
local function position(kid, scope)
  local q, p = B .. 'q:' .. kid, B .. 'p:' .. kid
  local rank = call('ZRANK', q, scope)
  if not rank or rank > 500 then return 0 end
  if rank == 0 then return 1 end
  local before = call('HMGET', p, unpack(call('ZRANGE', q, 0, rank - 1)))
  local n = 1
  for i = 1, #before do
    if before[i] and #before[i] > 32 then n = n + 1 end
  end
  return n
end

local function conflict(kid, scope, rec)
  local n = tonumber(call('HGET', B .. 'p:' .. kid, 'n') or 0)
  local at = n > 0 and position(kid, scope) or 0
  if n == 0 and call('ZSCORE', B .. 'q:' .. kid, scope) then at = 1 end
  return answer('conflict', rec and rec:byte(2) == 2 and rec, n, at)
end
