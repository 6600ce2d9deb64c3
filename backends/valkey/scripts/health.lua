-- Tries a write as the verbs do, then counts.
call('SET', B .. 'probe', '1', 'PX', 1000)
local active = call('ZCOUNT', B .. 'x', '(' .. string.format('%.0f', now), '+inf')
return answer('health', active, tonumber(call('GET', B .. 'n') or 0))
