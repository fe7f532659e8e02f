-- Publishes the given notices, and returns all notices published since the caller's last call.
--
-- KEYS: notices (hash: topic -> end, '+' or '-', text), order (zset: topic by version), ends (zset: topic by end).
-- ARGV: the epoch, version and floor that the caller knows ('', 0 and 0 at first), and the notices to publish: topic,
-- '+' (set), '>' (set, unless the current notice ends later) or '-' (withdraw), text, lifetime (ms; 0: until
-- withdrawn).
--
-- Returns the epoch, the time (ms), whether these are all current notices, whether there are more, the version and the
-- floor. The notices follow: topic, mark, end, text, version. A version is approximately the time of publication (us).

local NOTICES, ORDER, ENDS = KEYS[1], KEYS[2], KEYS[3]
local MAX_NOTICES = 100000
local PAGE = 500
local REMEMBERED = 3600000 -- How long a withdrawal is remembered, in milliseconds.
local call = redis.call

-- `floor` is the version of the last forgotten withdrawal.
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

-- If the server lost one or two of the keys, the remaining keys are invalid.
local known = call('HMGET', NOTICES, 'epoch', 'floor')
local count = call('ZCARD', ORDER)
local is_whole = call('HLEN', NOTICES) == count + (known[1] and 1 or 0) + (known[2] and 1 or 0) and
  (known[1] or count == 0) and call('ZCARD', ENDS) <= count
if not is_whole then known, count = { false, false }, 0 end

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

local function publish(topic, mark, text, lasts, version)
  local is_known = call('HMGET', NOTICES, topic)[1]
  if mark == '>' then
    local ends = is_known and is_known:match('^(%d+)%+')
    if ends and tonumber(ends) > now + lasts then return end
    mark = '+'
  end
  if not is_known and count >= MAX_NOTICES then
    local first = call('ZRANGE', ENDS, 0, 0)[1]
    if not first then return redis.error_reply('FULL there are ' .. MAX_NOTICES .. ' notices that never expire') end
    drop(first)
  elseif not is_known then
    count = count + 1
  end
  -- Withdrawals of unknown topics are kept too, for callers that received the notice before the server lost it.
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
  -- Drop expired notices, but only a few per call.
  local expired = call('ZRANGE', ENDS, '-inf', now, 'BYSCORE', 'LIMIT', 0, 100)
  for _, topic in ipairs(expired) do drop(topic) end
  count = count - #expired
  if not known[1] then call('HSET', NOTICES, 'epoch', string.format('%.0f', micros)) end
  for i = 4, #ARGV, 4 do
    version = version + 1
    local err = publish(ARGV[i], ARGV[i + 1], ARGV[i + 2], tonumber(ARGV[i + 3]), version)
    if err then return err end
  end
  -- If every notice has an end, let the keys expire after the last notice.
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
-- Start from the first notice for a new caller, after a loss of data, or if the caller missed a forgotten withdrawal. A
-- caller that knows the floor has missed nothing.
local all = ARGV[1] == '' or epoch ~= ARGV[1] or since > newest() or floor ~= ARGV[3] and since < tonumber(floor)
if all then since = 0 end
local found = {}
if is_whole then
  found = call('ZRANGE', ORDER, '(' .. string.format('%.0f', since), '+inf', 'BYSCORE', 'LIMIT', 0, PAGE, 'WITHSCORES')
end
local reply = {}
for i = 1, #found, 2 do
  local notice = call('HMGET', NOTICES, found[i])[1] or ''
  local until_, mark, text = notice:match('^(%d+)([+-])(.*)$')
  if until_ and (until_ == '0' or tonumber(until_) > now) then
    reply[#reply + 1] = found[i]
    reply[#reply + 1] = mark
    reply[#reply + 1] = until_
    reply[#reply + 1] = text
    reply[#reply + 1] = string.format('%.0f', found[i + 1])
  end
  since = tonumber(found[i + 1])
end
return {
  epoch, string.format('%.0f', now), all and 1 or 0, #found == 2 * PAGE and 1 or 0, string.format('%.0f', since), floor,
  unpack(reply)
}
