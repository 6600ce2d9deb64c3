local kid, scope, print, mode = ARGV[1], ARGV[2], ARGV[3], ARGV[11]
local p = B .. 'p:' .. kid
above = ARGV[18] + 0

-- sure tells that grants wait for replicas: nobody knows of one before that, and
-- what is told of one needs their word too.
local sure = ARGV[17] == '1'
local prior, about = replay(kid, scope)
if prior then
  if prior:sub(2, 17) ~= print then return answer('reused') end
  if call('ZREM', B .. 'u', kid .. scope) == 1 then
    call('HDEL', B .. 'v', kid .. scope)
    if about:byte(2) == 2 then return answer('acquired', about, 0) end
    -- It was over before anybody knew of it: this is a fresh attempt.
    call('DEL', B .. 'a:' .. scope)
    prior = false
  end
end
if prior then
  -- From here on somebody knows of the grant: it can no longer be undone.
  if prior:byte(18) == 0 and not sure then call('SETRANGE', B .. 'a:' .. scope, 17, '\1') end
  -- WAIT speaks of the last write of its connection: there has to be one.
  if prior:byte(18) == 0 and sure and about:byte(2) == 2 then call('SETRANGE', B .. 'a:' .. scope, 17, '\0') end
  return answer('acquired', about, 1, prior:byte(18))
end

local rec = load(kid)
if rec and rec:sub(3, 18) ~= ARGV[4]:sub(3, 18) then corrupt('key') end
local mine = call('HMGET', p, scope, 'm')
local place, queued = mine[1], mine[2]
if place and #place == 32 and queue().lost(place, call('ZSCORE', B .. 's:' .. kid, scope), queued) then
  queue().drop(kid, scope, place)
  place = false
end
if place and place:sub(1, 16) ~= print then return answer('reused') end
if mode ~= '0' then
  local why = call('GET', B .. 'f:' .. scope)
  if why then
    call('DEL', B .. 'f:' .. scope)
    if why == 'exhausted' then return answer('exhausted') end
    return answer('quota', why)
  end
end
local ttl, hist, events, idem, most = ARGV[6] + 0, ARGV[7] + 0, ARGV[8] + 0, ARGV[9] + 0, ARGV[10] + 0
if most > 0 and not place and queue().full(most, ARGV[5]) then return answer('quota', 'leases_per_owner') end

if not (rec and rec:byte(2) == 2) then
  -- The key is free, and so nobody stands in its queue: what is left there are
  -- places whose turn has passed.
  if queued then
    serve(kid)
    rec = load(kid)
    if call('ZREM', B .. 'u', kid .. scope) == 1 then
      call('HDEL', B .. 'v', kid .. scope)
      return answer('acquired', rec, 0)
    end
  end
  if not (rec and rec:byte(2) == 2) then
    local granted = grant(kid, scope, print, ARGV[4], ARGV[5], ttl, hist, events, idem, rec)
    if not granted then return answer('exhausted') end
    return answer('acquired', granted, 0)
  end
  place = place and call('HGET', p, scope)
end

if mode == '1' then
  if not place then
    place = print .. struct.pack('>I8I8', idem, 0)
    local asked = struct.pack('>I8I8I4I8I4I4', ttl, hist, events, idem, most, #ARGV[16]) .. ARGV[16] .. ARGV[4] .. ARGV[5]
    if not queue().enter(kid, scope, place, asked, ARGV[12] + 0) then return answer('quota', 'waiters_per_key') end
  end
  call('SET', B .. 'b', string.format('%.0f', now), 'NX')
  call('ZADD', B .. 'g', 'GT', now + ARGV[15] * 1000, ARGV[13])
  queue().attach(kid, scope, place, ARGV[13], ARGV[14] + 0)
  return answer('parked')
end
if mode == '2' and place and ARGV[14] ~= '0' then queue().detach(kid, scope, place, ARGV[13], ARGV[14] + 0) end
return queue().conflict(kid, scope, rec)
