-- Key id, scope, fingerprint, head and fixed part of the record, numbers (see
-- acquire.go), gateway, and who undoes the grant.
local kid, scope, print, gw = ARGV[1], ARGV[2], ARGV[3], ARGV[7]
local ttl, hist, events, idem, most, waiters, n, top, beat, mode, wants = struct.unpack('>I8I8I4I8I4I4I8I8I4BB', ARGV[6])
local p = B .. 'p:' .. kid
above = top

-- sure tells that grants wait for replicas: nobody knows of one before that, and
-- what is told of one needs their word too.
local sure = wants == 1
-- Before anything else: it may end a lease, and grant the key to this very request.
local rec = load(kid)
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

if rec and rec:sub(3, 18) ~= ARGV[4]:sub(3, 18) then corrupt('key') end
local mine = call('HMGET', p, scope, 'm')
local place, queued = mine[1], mine[2]
if place and #place == 32 and queue().lost(place, call('ZSCORE', B .. 's:' .. kid, scope), queued) then
  queue().drop(kid, scope, place)
  place, queued = false, call('HGET', p, 'm')
end
if place and place:sub(1, 16) ~= print then return answer('reused') end
if mode ~= 0 then
  local why = call('GET', B .. 'f:' .. scope)
  if why then
    call('DEL', B .. 'f:' .. scope)
    if why == 'exhausted' then return answer('exhausted') end
    return answer('quota', why)
  end
end
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
  mine = call('HMGET', p, scope, 'm')
  place, queued = mine[1], mine[2]
end

if mode == 1 then
  if place then
    queue().attach(kid, scope, place, gw, n)
  else
    local asked = struct.pack('>I8I8I4I8I4I4', ttl, hist, events, idem, most, #ARGV[8]) .. ARGV[8] .. ARGV[4] .. ARGV[5]
    if not queue().enter(kid, scope, print .. struct.pack('>I8I8', idem, 0), asked, waiters, gw, n, queued) then
      return answer('quota', 'waiters_per_key')
    end
  end
  local till = call('ZSCORE', B .. 'g', gw)
  if not till or till - now < beat * 500 then -- else a tick comes in time
    call('SET', B .. 'b', string.format('%.0f', now), 'NX')
    call('ZADD', B .. 'g', 'GT', now + beat * 1000, gw)
  end
  return answer('parked')
end
if mode == 2 and place and n ~= 0 then queue().detach(kid, scope, place, gw, n) end
return queue().conflict(kid, scope, rec)
