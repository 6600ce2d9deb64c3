-- Leaves places of the gateway at which nobody stands, and lists more of those at
-- which it has callers as far as the server knows. Arguments: gateway, attachment up
-- to which they are left, cursor of the list ("" for no list), places to leave.
local gw, n, cursor = ARGV[1], ARGV[2] + 0, ARGV[3]
for i = 4, #ARGV do
  local ok, err = pcall(queue().leave, ARGV[i]:sub(1, 22), ARGV[i]:sub(23), gw, n)
  if not ok then
    local why = type(err) == 'table' and err.err or tostring(err)
    if not (why:find('^CORRUPT') or why:find('^WRONGTYPE')) then error(err) end
  end
end
if cursor == '' then return answer('tidied', '0') end
local page = call('SSCAN', B .. 'y:' .. gw, cursor, 'COUNT', 100)
return answer('tidied', page[1], unpack(page[2]))
