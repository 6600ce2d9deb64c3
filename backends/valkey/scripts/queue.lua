-- The queue of a key:
--   q:<key>  sorted set, the scopes of the places that callers stand at, in the
--            order of arrival
--   s:<key>  the same for places whose callers are away
--   p:<key>  hash, scope -> place, r and scope -> what was asked for, and m:
--            places that are away and came before it have had their turn and are
--            lost, swept or not
-- A place is fingerprint (16), retention (8), when it was left (8), and for
-- each gateway with a caller at it: gateway (11) and attachment (8).
--   n        how many places of the namespace are present
--   g        sorted set, gateway -> until when it is believed alive
--   b        when a gateway last said so
--   o:<gw>   the gateway was believed dead and has lost places
--   y:<gw>   set, the places at which the gateway has callers
--   u, v     grants that nobody has taken yet, key and scope: sorted set by when
--            they were made; hash -> who undoes it, length first, and the place
--   f:<scp>  why a waiter was refused at its turn
--   d        sorted set, gateways and scopes of such waiters by when that was

-- queue makes the functions for waiting. Most calls never wait, and making a
-- function takes time.
local Q
local STALL = 900000
-- self is the gateway that the script runs for, where the answer brings it its
-- turns: those are mine.
local self, mine
local function queue()
  if Q then return Q end
  -- Beats of the living are over too when the server, or everybody's way to it,
  -- stood still: nobody is judged until a tick gave them time to beat again.
  local stalled
  local function alive(place)
    for i = 33, #place, 19 do
      local till = call('ZSCORE', B .. 'g', place:sub(i, i + 10))
      if till and tonumber(till) > now then return true end
    end
    if #place == 32 then return false end
    if stalled == nil then
      local last = call('GET', B .. 'b')
      stalled = last and now - last > STALL
    end
    return stalled
  end

  -- giveup lets a gateway that is believed dead know, should it live.
  local function giveup(gw) call('SET', B .. 'o:' .. gw, '1', 'PX', 60000) end

  -- expire lets the server forget a queue in which nobody stands any more.
  local function expire(kid, place)
    local keep = math.ceil(struct.unpack('>I8', place, 17) / 1000) + 1
    call('PEXPIRE', B .. 'p:' .. kid, keep)
    call('PEXPIRE', B .. 's:' .. kid, keep)
  end

  -- drop takes a place away. others tells that callers stand at other ones, if
  -- that is known.
  local function drop(kid, scope, place, others)
    local q, s, p = B .. 'q:' .. kid, B .. 's:' .. kid, B .. 'p:' .. kid
    for i = 33, #place, 19 do
      call('SREM', B .. 'y:' .. place:sub(i, i + 10), kid .. scope)
    end
    if #place > 32 then
      call('ZREM', q, scope)
      call('DECR', B .. 'n')
    else
      call('ZREM', s, scope)
    end
    call('HDEL', p, scope, 'r' .. scope)
    if others or call('EXISTS', q) == 1 then return end
    if call('EXISTS', s) == 0 then call('DEL', p) else expire(kid, place) end
  end

  -- lose drops places that nobody stands at.
  local function lose(kid, scopes)
    if #scopes == 0 then return end
    call('ZREM', B .. 's:' .. kid, unpack(scopes))
    local fields = {}
    for i = 1, #scopes do
      fields[2 * i - 1], fields[2 * i] = scopes[i], 'r' .. scopes[i]
    end
    call('HDEL', B .. 'p:' .. kid, unpack(fields))
  end

  local function tell(scope, place)
    for i = 33, #place, 19 do
      local gw = place:sub(i, i + 10)
      if gw == self then
        mine = mine or {}
        mine[#mine + 1] = scope
      else
        call('SPUBLISH', B .. 'w:' .. gw, scope)
      end
    end
  end

  -- first returns who is next in the queue of a free key: scope, place, what was
  -- asked for, and whether callers stand at others. Places that nobody
  -- stands at have had their turn and are lost; however many they are, few are
  -- dropped at once.
  local function first(kid)
    local q, s, p = B .. 'q:' .. kid, B .. 's:' .. kid, B .. 'p:' .. kid
    while true do
      local head = call('ZRANGE', q, 0, 1, 'WITHSCORES')
      local scope = head[1]
      if not scope then
        call('UNLINK', s, p)
        return nil
      end
      local both = call('HMGET', p, scope, 'r' .. scope)
      local place, asked = both[1], both[2]
      if not (place and asked) then corrupt('place') end
      local others = head[3] ~= nil
      if alive(place) then
        if call('EXISTS', s) == 1 then
          call('HSET', p, 'm', head[2])
          lose(kid, call('ZRANGEBYSCORE', s, '-inf', '(' .. head[2], 'LIMIT', 0, 100))
        end
        return scope, place, asked, others
      end
      drop(kid, scope, place, others)
      for i = 33, #place, 19 do giveup(place:sub(i, i + 10)) end
      tell(scope, place)
    end
  end

  -- sweep ends leases whose time is over, and returns how many it looked at.
  local function sweep(limit)
    local due = call('ZRANGEBYSCORE', B .. 'x', '-inf', now, 'LIMIT', 0, limit)
    for i = 1, #due do
      local ok, rec = pcall(load, due[i])
      if not ok then
        local why = type(rec) == 'table' and rec.err or tostring(rec)
        if not (why:find('^CORRUPT') or why:find('^WRONGTYPE')) then error(rec) end
        call('ZADD', B .. 'x', now + 60000000, due[i]) -- nobody ends it
      elseif not rec or rec:byte(2) ~= 2 then
        call('ZREM', B .. 'x', due[i])
      else
        local _, _, _, expires = dyn(rec)
        call('ZADD', B .. 'x', expires, due[i])
      end
    end
    return #due
  end

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

  -- handover gives a free key to the first place that a living gateway stands at.
  -- The gateway takes the grant by trying; what nobody takes is undone.
  local function handover(kid)
    while true do
      local scope, place, r, others = first(kid)
      if not scope then return end
      local ttl, hist, events, idem, most, n = struct.unpack('>I8I8I4I8I4I4', r)
      local who, head, fixed = r:sub(37, 36 + n), r:sub(37 + n, 86 + n), r:sub(87 + n)
      local why = full(most, fixed) and 'leases_per_owner'
      drop(kid, scope, place, others)
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
      for i = 33, #place, 19 do call('ZADD', B .. 'd', now, place:sub(i, i + 10) .. scope) end
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

  -- attach notes that the gateway has a caller at the place. n orders what a
  -- gateway says of one place, so that a late goodbye cannot cut off a caller who
  -- came after it.
  local function attach(kid, scope, place, gw, n)
    local q, s, p = B .. 'q:' .. kid, B .. 's:' .. kid, B .. 'p:' .. kid
    local head, rest, at = place:sub(1, 24) .. struct.pack('>I8', 0), place:sub(33), nil
    for i = 1, #rest, 19 do
      if rest:sub(i, i + 10) == gw then at = i end
    end
    if at then
      n = math.max(n, (struct.unpack('>I8', rest, at + 11)))
      rest = rest:sub(1, at - 1) .. rest:sub(at + 19)
    end
    if #place == 32 then
      local arrived = call('ZSCORE', s, scope)
      call('ZREM', s, scope)
      call('ZADD', q, arrived, scope)
      call('INCR', B .. 'n')
      call('PERSIST', p)
      call('PERSIST', s)
    end
    call('HSET', p, scope, head .. rest .. gw .. struct.pack('>I8', n))
    if not at then call('SADD', B .. 'y:' .. gw, kid .. scope) end
  end

  -- detach takes the gateway's callers away from the place, which is kept.
  local function detach(kid, scope, place, gw, n)
    local q, s, p = B .. 'q:' .. kid, B .. 's:' .. kid, B .. 'p:' .. kid
    for i = 33, #place, 19 do
      if place:sub(i, i + 10) == gw then
        if struct.unpack('>I8', place, i + 11) > n then return place end
        local rest = place:sub(33, i - 1) .. place:sub(i + 19)
        call('SREM', B .. 'y:' .. gw, kid .. scope)
        if rest == '' then
          call('ZADD', s, call('ZSCORE', q, scope), scope)
          call('ZREM', q, scope)
          call('DECR', B .. 'n')
          if call('EXISTS', q) == 0 then expire(kid, place) end
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

  -- leave takes the gateway's callers away from the place, or from a grant that
  -- none of them took.
  local function leave(kid, scope, gw, n)
    local place = call('HGET', B .. 'p:' .. kid, scope)
    if place then detach(kid, scope, place, gw, n) end
    local v = call('HGET', B .. 'v', kid .. scope)
    if not v then return end
    local who, at = untaken(v)
    local rest = ''
    for i = 33, #at, 19 do
      if at:sub(i, i + 10) ~= gw or struct.unpack('>I8', at, i + 11) > n then rest = rest .. at:sub(i, i + 18) end
    end
    if rest == '' then
      untake(kid, scope, who)
    else
      call('HSET', B .. 'v', kid .. scope, v:sub(1, 4 + #who) .. at:sub(1, 32) .. rest)
    end
  end

  -- lost tells that a place which nobody stands at has had its turn, or is
  -- forgotten. m is the p hash's.
  local function lost(place, arrived, m)
    return not arrived or (m and tonumber(arrived) < tonumber(m)) or
      now - struct.unpack('>I8', place, 25) > struct.unpack('>I8', place, 17)
  end

  -- enter makes a place at the end of the queue, for a caller at the gateway. At
  -- the limit it takes the room of the first one that nobody stands at; if there
  -- is none it makes no place. m is the p hash's, if there is one.
  local function enter(kid, scope, place, asked, limit, gw, n, m)
    local q, s, p = B .. 'q:' .. kid, B .. 's:' .. kid, B .. 'p:' .. kid
    if m then
      -- More go than come, so that those who never return do not pile up.
      local away, gone = call('ZRANGE', s, 0, 15, 'WITHSCORES'), {}
      for i = 1, #away, 2 do
        local old = call('HGET', p, away[i])
        if not old or lost(old, away[i + 1], m) then gone[#gone + 1] = away[i] end
      end
      lose(kid, gone)
    end
    if limit > 0 then
      local present = call('ZCARD', q)
      if present >= limit then return false end
      local over = m and present + call('ZCARD', s) - limit or -1
      if over >= 0 then lose(kid, call('ZRANGE', s, 0, math.min(over, 999))) end
    end
    local arrived, last = now, call('ZRANGE', q, -1, -1, 'WITHSCORES')[2]
    if last then arrived = math.max(arrived, last + 1) end
    if m then
      local gone = call('ZRANGE', s, -1, -1, 'WITHSCORES')[2]
      if gone then arrived = math.max(arrived, gone + 1) end
      if not last then
        call('PERSIST', p)
        call('PERSIST', s)
      end
    end
    call('ZADD', q, arrived, scope)
    call('HSET', p, scope, place .. gw .. struct.pack('>I8', n), 'r' .. scope, asked, 'm', m or '0')
    call('INCR', B .. 'n')
    call('SADD', B .. 'y:' .. gw, kid .. scope)
    return true
  end

  -- position counts those present up to the scope's place.
  local function position(kid, scope)
    local q, s = B .. 'q:' .. kid, B .. 's:' .. kid
    local rank = call('ZRANK', q, scope)
    if rank then return rank + 1 end
    local arrived = call('ZSCORE', s, scope)
    return arrived and call('ZCOUNT', q, '-inf', arrived) + 1 or 0
  end

  local function conflict(kid, scope, rec)
    return answer('conflict', rec and rec:byte(2) == 2 and rec, call('ZCARD', B .. 'q:' .. kid), position(kid, scope))
  end

  Q = {
    alive = alive,
    drop = drop,
    first = first,
    tell = tell,
    sweep = sweep,
    full = full,
    handover = handover,
    untake = untake,
    untaken = untaken,
    giveup = giveup,
    lost = lost,
    enter = enter,
    attach = attach,
    detach = detach,
    leave = leave,
    conflict = conflict,
  }
  return Q
end

-- serve hands a key that became free over to the next waiter. A waiter's quota
-- is counted by ending what is over, which frees more keys: those are served
-- afterwards, for each inside the other would need a stack as deep as they are
-- many.
local freed
function serve(kid)
  if call('EXISTS', B .. 'q:' .. kid, B .. 's:' .. kid) == 0 then return end
  if freed then
    freed[#freed + 1] = kid
    return
  end
  freed = {kid}
  local i, broken = 1, nil
  while freed[i] do
    local ok, err = pcall(queue().handover, freed[i])
    if not ok then broken = broken or err end
    i = i + 1
  end
  freed = nil
  if broken then error(broken) end
end
