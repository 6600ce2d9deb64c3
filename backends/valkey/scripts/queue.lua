-- The queue of a key:
--   q:<key>  sorted set, the scopes of its places in the order of arrival
--   p:<key>  hash, scope -> place, and n: how many of the places are present
--   r:<key>  hash, scope -> what was asked for
-- A place is fingerprint (16), retention (8), when it was left (8), and for
-- each gateway with a caller at it: gateway (11) and attachment (8).
--   n        how many places of the namespace are present
--   g        sorted set, gateway -> until when it is believed alive
--   y:<gw>   set, the places at which the gateway has callers
--   u, v     grants that nobody has taken yet, key and scope: sorted set by when
--            they were made; hash -> who undoes it, length first, and the place
--   f:<scp>  why a waiter was refused at its turn
local function alive(place)
  for i = 33, #place, 19 do
    local till = call('ZSCORE', B .. 'g', place:sub(i, i + 10))
    if till and tonumber(till) > now then return true end
  end
  return false
end

local function absent(kid, p, place)
  call('HINCRBY', p, 'n', -1)
  call('DECR', B .. 'n')
end

local function drop(kid, scope, place)
  local q, p = B .. 'q:' .. kid, B .. 'p:' .. kid
  for i = 33, #place, 19 do
    call('SREM', B .. 'y:' .. place:sub(i, i + 10), kid .. scope)
  end
  if #place > 32 then absent(kid, p, place) end
  call('HDEL', p, scope)
  call('HDEL', B .. 'r:' .. kid, scope)
  call('ZREM', q, scope)
  if call('EXISTS', q) == 0 then call('DEL', p) end
end

-- first returns who is next in the queue of a free key. Places that nobody
-- stands at have had their turn and are lost.
local function first(kid)
  local q, p = B .. 'q:' .. kid, B .. 'p:' .. kid
  while true do
    local scope = call('ZRANGE', q, 0, 0)[1]
    if not scope then return nil end
    local place = call('HGET', p, scope)
    if not place then corrupt('place') end
    if alive(place) then return scope, place end
    drop(kid, scope, place)
  end
end

local function tell(scope, place)
  for i = 33, #place, 19 do
    call('SPUBLISH', B .. 'w:' .. place:sub(i, i + 10), scope)
  end
end
