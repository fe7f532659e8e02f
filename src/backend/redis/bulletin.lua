-- A board of notices: posts one, if there is one, and tells which were posted since the caller last asked.
--
-- KEYS: notices (hash: topic -> until, '+' or '-', text), order (zset: topic by version), ends (zset: topic by until).
-- ARGV: epoch and version that the caller knows; then, of a notice: topic, '+' (so it is) or '-' (not any more), text, for
-- how many milliseconds (0 = until withdrawn).
-- Returns epoch, time (ms), whether these are all that stand, whether there are more, version, and topic, mark, until, text of each.

local NOTICES, ORDER, ENDS = KEYS[1], KEYS[2], KEYS[3]
local MOST = 100000 -- Notices that stand.
local PAGE = 500
local REMEMBERED = 3600000 -- For how long it is remembered that one was withdrawn.
local call = redis.call

-- `floor` is the version of the last withdrawal that was forgotten.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local function drop(topic)
  call('HDEL', NOTICES, topic)
  call('ZREM', ORDER, topic)
  call('ZREM', ENDS, topic)
end

local function newest()
  return tonumber(call('ZRANGE', ORDER, 0, 0, 'REV', 'WITHSCORES')[2] or 0)
end

local function post(topic, mark, text, lasts)
  -- What is over goes, a little at a time. Of what was withdrawn, it is remembered up to when.
  local over = call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
  local version = math.max(newest() + 1, micros)
  for _, topic in ipairs(over) do
    if call('HMGET', NOTICES, topic)[1]:find('^%d+-') then
      call('HSET', NOTICES, 'floor', call('ZSCORE', ORDER, topic))
    end
    drop(topic)
  end
  local stands = call('HMGET', NOTICES, topic)[1]
  if mark == '-' and not stands then return end
  if not stands and call('ZCARD', ORDER) >= MOST then
    local first = call('ZRANGE', ENDS, 0, 0)[1]
    if not first then return redis.error_reply('FULL there are ' .. MOST .. ' notices that have no end') end
    drop(first)
  end
  if mark == '-' then lasts = REMEMBERED end
  local until_ = lasts > 0 and now + lasts or 0
  call('HSET', NOTICES, topic, string.format('%d', until_) .. mark .. text)
  call('ZADD', ORDER, string.format('%.0f', version), topic)
  if until_ > 0 then call('ZADD', ENDS, string.format('%.0f', until_), topic) else call('ZREM', ENDS, topic) end
  if not call('HMGET', NOTICES, 'epoch')[1] then call('HSET', NOTICES, 'epoch', string.format('%.0f', micros)) end
  -- A board on which nothing stands for good ends with the last of it.
  local last = call('ZRANGE', ENDS, 0, 0, 'REV', 'WITHSCORES')[2]
  for _, key in ipairs(KEYS) do
    if last and call('ZCARD', ORDER) == call('ZCARD', ENDS) then
      call('PEXPIREAT', key, string.format('%.0f', tonumber(last) + REMEMBERED))
    else
      call('PERSIST', key)
    end
  end
end

if ARGV[3] then
  local refused = post(ARGV[3], ARGV[4], ARGV[5], tonumber(ARGV[6]))
  if refused then return refused end
end

local known = call('HMGET', NOTICES, 'epoch', 'floor')
local epoch = known[1] or ''
local since = tonumber(ARGV[2])
-- A caller who knows another board, or has missed what is not remembered any more, begins anew.
local all = epoch ~= ARGV[1] or since < tonumber(known[2] or 0)
if all then since = 0 end
local found = call('ZRANGE', ORDER, '(' .. string.format('%.0f', since), '+inf', 'BYSCORE', 'LIMIT', 0, PAGE, 'WITHSCORES')
local told = {}
for i = 1, #found, 2 do
  local notice = call('HMGET', NOTICES, found[i])[1] or ''
  local until_, mark, text = notice:match('^(%d+)([+-])(.*)$')
  if until_ and (until_ == '0' or tonumber(until_) > now) then
    told[#told + 1] = found[i]
    told[#told + 1] = mark
    told[#told + 1] = until_
    told[#told + 1] = text
  end
  since = tonumber(found[i + 1])
end
local reply = {
  epoch, string.format('%.0f', now), all and 1 or 0, #found == 2 * PAGE and 1 or 0, string.format('%.0f', since), unpack(told)
}
return reply
