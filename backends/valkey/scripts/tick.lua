-- What a gateway does every now and then: it says that it lives (and is told
-- when it was given up), takes the callers of dead gateways away, ends leases
-- whose time is over, tells again of grants that nobody took, and forgets.
local gw, beat, patience, waiting = ARGV[1], ARGV[2] * 1000, ARGV[3] * 1000, ARGV[4] == '1'
above = ARGV[5] + 0
local lost = call('DEL', B .. 'o:' .. gw)
if waiting then
  if not call('ZSCORE', B .. 'g', gw) then lost = 1 end
  call('ZADD', B .. 'g', now + beat, gw)
end

-- Nobody could beat, or beats are measured by a clock that was set back: everybody
-- gets the time to beat again.
local last = tonumber(call('GET', B .. 'b') or '')
if last and (now - last > STALL or last > now) then
  local all = call('ZRANGE', B .. 'g', 0, -1)
  for i = 1, #all do call('ZADD', B .. 'g', now + beat, all[i]) end
  local ahead = call('ZRANGEBYSCORE', B .. 'u', now, '+inf', 'LIMIT', 0, 1000)
  for i = 1, #ahead do call('ZADD', B .. 'u', now, ahead[i]) end
end

local more = 0
local dead = call('ZRANGEBYSCORE', B .. 'g', '-inf', now, 'LIMIT', 0, 4)
for i = 1, #dead do
  local held = call('SRANDMEMBER', B .. 'y:' .. dead[i], 100)
  for j = 1, #held do
    local kid, scope = held[j]:sub(1, 22), held[j]:sub(23)
    local place = call('HGET', B .. 'p:' .. kid, scope)
    if place then queue().detach(kid, scope, place, dead[i], MAXTOKEN) end
    call('SREM', B .. 'y:' .. dead[i], held[j])
  end
  queue().giveup(dead[i])
  if #held == 100 then more = 1 else call('ZREM', B .. 'g', dead[i]) end
end

if queue().sweep(100) == 100 then more = 1 end

local turns = {}
local called = call('ZRANGEBYSCORE', B .. 'u', '-inf', now - 100000, 'LIMIT', 0, 100, 'WITHSCORES')
for i = 1, #called, 2 do
  local kid, scope = called[i]:sub(1, 22), called[i]:sub(23)
  local v = call('HGET', B .. 'v', called[i])
  if not v then
    call('ZREM', B .. 'u', called[i])
  else
    local who, place = queue().untaken(v)
    if not queue().alive(place) or now - called[i + 1] > patience then
      queue().untake(kid, scope, who)
    elseif place:find(gw, 33, true) then
      turns[#turns + 1] = called[i]
    else
      queue().tell(scope, place)
    end
  end
end

-- Refusals that their waiters may not have heard of.
local refused = call('ZRANGEBYSCORE', B .. 'd', '-inf', now - 100000, 'LIMIT', 0, 500, 'WITHSCORES')
for i = 1, #refused, 2 do
  local mine = refused[i]:sub(1, 11) == gw
  if mine then turns[#turns + 1] = refused[i]:sub(12) end
  if mine or now - refused[i + 1] > patience then call('ZREM', B .. 'd', refused[i]) end
end

for state = 3, 5 do
  local z = B .. 'z' .. state
  local over = call('ZCOUNT', z, '-inf', math.floor(now / 1000))
  if over > 0 then call('ZREMRANGEBYRANK', z, 0, math.min(over, 500) - 1) end
  if over > 500 then more = 1 end
end

meta()
if now - seen > 1000000 then
  seen = now
  savemeta()
end
local crowd = call('ZCARD', B .. 'g')
if crowd > 0 then
  call('SET', B .. 'b', string.format('%.0f', now))
elseif last then
  call('DEL', B .. 'b')
end
local next = call('ZRANGE', B .. 'x', 0, 0, 'WITHSCORES')[2] or '0'
return answer('tick', lost, more, next, crowd, call('SCARD', B .. 'y:' .. gw), unpack(turns))
