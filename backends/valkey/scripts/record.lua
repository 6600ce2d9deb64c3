-- The record of a lease, one string (record.go writes the same):
--   1  version, state           2
--   3  key id, nonce, holder    16 each
--   51 token, acquired, renewed, expires, TTL      8 each, renewals 4,
--      ended 8, history 8, events 4, idempotency 8
--   123 maximum lifetime 8, scope 16, owner tag 12, tags of target, job,
--      instance, tenant, program, actor 8 each
--   207 text 4 + n, end 4 + n
--   then the suffix, 52: the places of its two events in the stream, epoch and
--   number, 8 each; nonce of the key's lease before it, 16; how many there were
--   before it, 4
-- All instants and durations are in µs.
local DYN = '>I8I8I8I8I8I4I8I8I4I8'
local MAXTOKEN = 9007199254740991
local NONE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'

local function dyn(rec)
  if #rec < 266 or rec:byte(1) ~= 1 then corrupt('record') end
  return struct.unpack(DYN, rec, 51)
end

-- meta reads the namespace's floor, the epoch of its stream, and the latest
-- instant that was seen.
local floor, epoch, seen
local above = 0 -- the highest token that the caller knows of
local function savemeta() call('SET', B .. 'm', struct.pack('>I8I8I8', floor, epoch, seen)) end

local function meta()
  if floor then return end
  local m = call('GET', B .. 'm')
  if m then
    floor, epoch, seen = struct.unpack('>I8I8I8', m)
    -- A clock that was set back must not grant a token twice.
    if now < seen then
      floor, seen = math.max(floor, seen + 2000000), now
      savemeta()
    end
    -- The store has gone back, and somebody who saw less was here since.
    if above > math.max(floor, now) then
      floor, epoch = above, math.max(epoch + 1, math.floor(now / 1000))
      savemeta()
    end
  else
    floor, epoch, seen = above, math.floor(now / 1000), now
    savemeta()
  end
end

-- event appends to the namespace's stream and returns the event's place in it.
-- Numbers begin at 1 and leave none out, so that a reader notices a gap.
local function event(body, cause)
  meta()
  local id = call('XADD', B .. 'e', 'MAXLEN', '~', 10000, string.format('%.0f-*', epoch), 'r', body, 'c', cause)
  return epoch, id:sub(id:find('-', 1, true) + 1) + 1
end

-- remembered is how long after its end a lease is kept: as long as any answer
-- about it may be replayed, which for grants and renewals counts from when the
-- lease would have ended.
local function remembered(hist, idem, expires, at)
  return math.max(hist, idem + math.max(0, expires - at))
end

-- finish ends the active lease of a key. The caller serves the queue.
local function finish(kid, rec, state, at, tail, hist, events, idem)
  local token, acquired, renewed, expires, ttl, renewals, _, _, _, longest = dyn(rec)
  idem = math.max(idem, longest)
  call('ZREM', B .. 'x', kid)
  local job = rec:sub(167, 174)
  if job == '\0\0\0\0\0\0\0\0' then
    call('ZREM', B .. 'i', 'o' .. rec:sub(147, 158) .. kid, 't' .. rec:sub(159, 166) .. kid)
  else
    call('ZREM', B .. 'i', 'o' .. rec:sub(147, 158) .. kid, 't' .. rec:sub(159, 166) .. kid, 'j' .. job .. kid)
  end
  local body = rec:sub(1, 1) .. string.char(state) .. rec:sub(3, 50) ..
    struct.pack(DYN, token, acquired, renewed, expires, ttl, renewals, at, hist, events, idem) ..
    rec:sub(123, -57) .. struct.pack('>I4', #tail) .. tail
  local keep = math.ceil(remembered(hist, idem, expires, now) / 1000) + 1
  call('ZADD', B .. 'z' .. state, math.floor(now / 1000) + keep, kid .. rec:sub(19, 34))
  local e, n = event(body, '')
  rec = body .. rec:sub(-52, -37) .. struct.pack('>I8I8', e, n) .. rec:sub(-20)
  call('SET', B .. 'k:' .. kid, rec, 'PX', keep)
  return rec
end

local load, serve

-- recorded returns when the end of a lease was committed.
local function recorded(rec)
  if rec:byte(2) == 3 then return (struct.unpack('>I8', rec, #rec - 59)) end
  return (struct.unpack('>I8', rec, 95))
end

-- load returns the latest record of a key. A lease whose time is over ends
-- here, whoever was the first to notice.
function load(kid)
  local rec = call('GET', B .. 'k:' .. kid)
  if not rec then return false end
  if #rec < 266 or rec:byte(1) ~= 1 then corrupt('record') end
  if rec:byte(2) == 2 and struct.unpack('>I8', rec, 75) <= now then
    local _, _, _, expires, _, _, _, hist, events, idem = dyn(rec)
    rec = finish(kid, rec, 3, expires, struct.pack('>I8', now), hist, events, idem)
    ended = ended or {}
    ended[#ended + 1] = rec
    serve(kid)
    rec = call('GET', B .. 'k:' .. kid)
  end
  return rec
end

local function visible(rec, hist) return rec:byte(2) == 2 or now - recorded(rec) < hist end

-- before returns the nonce of the key's lease before this one, nil if there was
-- none.
local function before(rec)
  local nonce = rec:sub(-20, -5)
  return nonce ~= NONE and nonce or nil
end

-- older returns a lease of the key that is not the latest, if it is remembered.
local function older(nonce, rec)
  if not rec then return false end
  local found = call('GET', B .. 'l:' .. nonce)
  if not found or found:sub(3, 18) ~= rec:sub(3, 18) then return false end
  local _, _, _, _, _, _, _, hist, events = dyn(rec)
  local between = struct.unpack('>I4', rec, #rec - 3) - struct.unpack('>I4', found, #found - 3) - 1
  if between < 0 then return false end
  local before = (rec:byte(2) == 2 and 1 or 2) + 2 * between
  return before < events and visible(found, hist) and found
end

-- find returns a lease by its nonce, if it is remembered.
local function find(kid, nonce)
  local rec = load(kid)
  if not rec then return false end
  if rec:sub(19, 34) ~= nonce then return older(nonce, rec) end
  if rec:byte(2) == 2 then return rec end
  local _, _, _, _, _, _, _, hist = dyn(rec)
  return visible(rec, hist) and rec
end

-- replay returns the stored answer to a request and the lease that it is about.
-- An answer can outlive its lease, when a renewal made that shorter; then it is
-- forgotten too.
local function replay(kid, scope)
  local prior = call('GET', B .. 'a:' .. scope)
  if not prior then return false end
  local nonce = prior:sub(19, 34)
  local rec = load(kid)
  if not rec or rec:sub(19, 34) ~= nonce then rec = call('GET', B .. 'l:' .. nonce) end
  return rec and prior, rec
end
