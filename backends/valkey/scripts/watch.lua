-- Answers where a stream begins: at what comes next, or after an event.
meta()
local last = call('XREVRANGE', B .. 'e', '+', '-', 'COUNT', 1)[1]
local le, ln = epoch, 0
if last then
  le, ln = last[1]:match('^(%d+)%-(%d+)$')
  le, ln = le + 0, ln + 1
end
if ARGV[1] == '' then return answer('from', string.format('%.0f', le), string.format('%.0f', ln)) end
local e, n = ARGV[1] + 0, ARGV[2] + 0
if e > le or (e == le and n > ln) then return answer('unknown') end
if n > 0 then
  local first = call('XRANGE', B .. 'e', '-', '+', 'COUNT', 1)[1]
  if first then
    local fe, fn = first[1]:match('^(%d+)%-(%d+)$')
    fe, fn = fe + 0, fn + 1
    local id = string.format('%.0f-%.0f', e, n - 1)
    local kept = e > fe or (e == fe and n >= fn)
    if kept and #call('XRANGE', B .. 'e', id, id) == 0 then return answer('unknown') end
  end
end
return answer('from', ARGV[1], ARGV[2])
