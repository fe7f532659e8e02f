-- A board of notices: posts some, if there are any, and tells which were posted since the caller last asked.
--
-- KEYS: notices (hash: topic -> until, '+' or '-', text), order (zset: topic by version), ends (zset: topic by until).
-- ARGV: epoch, version and floor that the caller knows ('', 0 and 0 = nothing yet); then of each notice: topic, '+' (so it is) or '-' (not any
-- more), text, for how many milliseconds (0 = until withdrawn).
-- Returns epoch, time (ms), whether these are all that stand, whether there are more, version, floor, and topic, mark, until, text of
-- each.

local NOTICES, ORDER, ENDS = KEYS[1], KEYS[2], KEYS[3]
local MOST = 100000 -- Notices that stand.
local PAGE = 500
local REMEMBERED = 3600000 -- For how long it is remembered that one was withdrawn.
local call = redis.call

-- `floor` is the version of the last withdrawal that was forgotten.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

-- Of three keys, some may be lost and others not. What is left then is worth nothing.
local known = call('HMGET', NOTICES, 'epoch', 'floor')
local standing = call('ZCARD', ORDER)
local is_whole = call('HLEN', NOTICES) == standing + (known[1] and 1 or 0) + (known[2] and 1 or 0) and
  (known[1] or standing == 0) and call('ZCARD', ENDS) <= standing
if not is_whole then known, standing = { false, false }, 0 end

local function newest()
  if not is_whole then return 0 end
  return tonumber(call('ZRANGE', ORDER, 0, 0, 'REV', 'WITHSCORES')[2] or 0)
end

local function drop(topic)
  if (call('HMGET', NOTICES, topic)[1] or ''):find('^%d+-') then
    call('HSET', NOTICES, 'floor', call('ZSCORE', ORDER, topic) or '0')
  end
  call('HDEL', NOTICES, topic)
  call('ZREM', ORDER, topic)
  call('ZREM', ENDS, topic)
end

local function post(topic, mark, text, lasts, version)
  local stands = call('HMGET', NOTICES, topic)[1]
  if not stands and standing >= MOST then
    local first = call('ZRANGE', ENDS, 0, 0)[1]
    if not first then return redis.error_reply('FULL there are ' .. MOST .. ' notices that have no end') end
    drop(first)
  elseif not stands then
    standing = standing + 1
  end
  -- Also of one that does not stand: who knows of it from elsewhere is told.
  if mark == '-' then lasts = REMEMBERED end
  local until_ = lasts > 0 and now + lasts or 0
  call('HSET', NOTICES, topic, string.format('%.0f', until_) .. mark .. text)
  call('ZADD', ORDER, string.format('%.0f', version), topic)
  if until_ > 0 then call('ZADD', ENDS, string.format('%.0f', until_), topic) else call('ZREM', ENDS, topic) end
end

if ARGV[4] then
  if not is_whole then call('DEL', NOTICES, ORDER, ENDS) end
  local version = math.max(newest(), micros - 1)
  is_whole = true
  -- What is over goes, a little at a time.
  local over = call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
  for _, topic in ipairs(over) do drop(topic) end
  standing = standing - #over
  if not known[1] then call('HSET', NOTICES, 'epoch', string.format('%.0f', micros)) end
  for i = 4, #ARGV, 4 do
    version = version + 1
    local refused = post(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), version)
    if refused then return refused end
  end
  -- A board on which nothing stands for good ends with the last of it.
  local last = call('ZRANGE', ENDS, 0, 0, 'REV', 'WITHSCORES')[2]
  for _, key in ipairs(KEYS) do
    if last and call('ZCARD', ORDER) == call('ZCARD', ENDS) then
      call('PEXPIREAT', key, string.format('%.0f', tonumber(last) + REMEMBERED))
    else
      call('PERSIST', key)
    end
  end
  known = call('HMGET', NOTICES, 'epoch', 'floor')
end

local epoch = known[1] or ''
local since = tonumber(ARGV[2])
local floor = known[2] or '0'
-- A caller who knows nothing, or another board, or a later state of this one, begins anew; so does who has missed something that is
-- forgotten, but not who has begun since then and is being told page by page.
local all = ARGV[1] == '' or epoch ~= ARGV[1] or since > newest() or floor ~= ARGV[3] and since < tonumber(floor)
if all then since = 0 end
local found = {}
if is_whole then
  found = call('ZRANGE', ORDER, '(' .. string.format('%.0f', since), '+inf', 'BYSCORE', 'LIMIT', 0, PAGE, 'WITHSCORES')
end
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
return {
  epoch, string.format('%.0f', now), all and 1 or 0, #found == 2 * PAGE and 1 or 0, string.format('%.0f', since), floor,
  unpack(told)
}
