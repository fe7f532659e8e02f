-- Executes operations on rows. Names and the order of arithmetic (in doubles) are those of the module `algorithm`.
--
-- KEYS contains the rows, ARGV[1] the quotas, and ARGV[2] the operations. wire.rs documents their encoding, and defines
-- the constants that are not defined here.

local ceil, floor, min, max, fmod = math.ceil, math.floor, math.min, math.max, math.fmod
local pack, unpack_bytes, call, pcall = struct.pack, struct.unpack, redis.call, redis.pcall

local HEADER_FORMAT, WINDOW_FORMAT = '<BBI2I4', '<dddI4I4'
local QUOTA_FORMAT, LINE_FORMAT = '<BI4ddddd', '<HBHddd'
local LEASE_FORMAT, REQUEST_FORMAT = '<dddd', '<HBHdddddddddd'
-- A row that does not exist, and a window in which nothing is spent.
local NONE, EMPTY = ('\0'):rep(HEADER), ('\0'):rep(WINDOW)
local ROUNDING = 1e-6
local ROUNDED_TWICE = 1 + 2 ^ -51

local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- Reading -------------------------------------------------------------------------------------------------------------

-- Describes a value that is not a row of this version. The value stays unchanged.
local function described(length, first)
  return pack('<I4I4B', FOREIGN, length, first or 0)
end

local function has_lease(sections, window)
  return floor(sections / 2 ^ window) % 2 == 1
end

-- Returns how many of a row's windows below `windows` have leases.
local function leases_below(windows, sections)
  local count = 0
  for window = 0, windows - 1 do
    if has_lease(sections, window) then count = count + 1 end
  end
  return count
end

local function is_row(bytes)
  if #bytes <= HEADER then return false end
  local version, windows, sections = unpack_bytes(HEADER_FORMAT, bytes)
  return version == VERSION and windows <= MAX_WINDOWS and sections < 2 ^ windows
    and #bytes == HEADER + windows * WINDOW + leases_below(windows, sections) * LEASE
end

-- The values before the call, and their headers: windows, leases, and expiry (nil if a value is not a row).
local found, counts, sections, drops = #KEYS == 1 and {} or call('MGET', unpack(KEYS)), {}, {}, {}
for i = 1, #KEYS do
  counts[i], sections[i] = 0, 0
  local bytes = found[i]
  -- For a key of a different type, MGET returns nil and GET returns an error.
  if not bytes then bytes = pcall('GET', KEYS[i]) end
  if not bytes then
    bytes, drops[i] = NONE, 0
  elseif bytes.err then
    if not bytes.err:find('WRONGTYPE', 1, true) then return call('GET', KEYS[i]) end -- raises the error
    bytes = described(NEVER)
  elseif not is_row(bytes) then
    bytes = described(#bytes, bytes:byte())
  else
    local _
    _, counts[i], sections[i], drops[i] = unpack_bytes(HEADER_FORMAT, bytes)
  end
  found[i] = bytes
end
-- The changed windows, each followed by its leases, and the number of each row's last changed window, counted from 1.
local changed, width = {}, {}

-- Returns the leases of a window as they were before the call, or an empty string.
local function found_leases(row, window)
  if not has_lease(sections[row], window) then return '' end
  local offset = HEADER + counts[row] * WINDOW + leases_below(window, sections[row]) * LEASE
  return found[row]:sub(offset + 1, offset + LEASE)
end

-- The current window: the fields of `State`, and the expiry `drop`. `clear` is in seconds, `clear_at` in microseconds.
local drop, spent, at, carry, row_stamp, clear, clear_at, is_lone

-- The outstanding tokens of the current window; see algorithm/lease.rs.
local since, turn, current, last

-- The current quota. A bucket's rate and period are in lowest terms. One grain of `rate` tokens is refilled per period.
local algorithm, stamp, rate, period, limit, ceiling, fill, start
local quotas, known = ARGV[1], nil

local function use(number, start_of_windows)
  start = start_of_windows
  if number ~= known then
    algorithm, stamp, rate, period, limit, ceiling, fill = unpack_bytes(QUOTA_FORMAT, quotas, number * QUOTA + 1)
    known = number
  end
end

-- Windows -------------------------------------------------------------------------------------------------------------

local function index(instant)
  -- Subtract `start` first, because adding a period may exceed the exact range of a double.
  local since = instant - start
  if since < 0 then return 0 end
  return (since - fmod(since, period)) / period + 1
end

local function boundary(window)
  return max((window - 1) * period + start, 0)
end

-- Returns the weight of the previous window's count, as a time in microseconds.
local function weight(instant)
  local since, elapsed = instant - start, 0
  if instant >= at then elapsed = since < 0 and since + period or fmod(since, period) end
  return period - elapsed
end

local function weighted_carry(instant)
  return min(carry * weight(instant) / period, carry)
end

-- Spent tokens --------------------------------------------------------------------------------------------------------

-- For a bucket, returns the tokens that have been refilled since `at`.
local function repaid(instant)
  return max(instant - at, 0) * rate / period
end

-- Returns whether no more than `level` tokens have been spent.
local function within(instant, level)
  if algorithm == TOKEN_BUCKET then return spent - level <= repaid(instant) end
  if algorithm == FIXED_WINDOW then return spent <= level end
  return weighted_carry(instant) <= level - spent
end

-- For a bucket or a fixed window, returns the spent tokens at `instant`.
local function spent_at(instant)
  if algorithm == TOKEN_BUCKET then return max(spent - repaid(instant), 0) end
  return spent
end

-- Returns whether the row was written by another quota and has not yet expired.
local function is_foreign(instant)
  if row_stamp == stamp or row_stamp == 0 then return false end
  local owed = row_stamp % TAGS == SLIDING_WINDOW and spent + carry or spent
  return owed > 0 and instant < clear_at
end

-- Returns the second by which `tokens` are refilled if the refill starts at `from`.
local function cleared(tokens, from)
  local micros
  if algorithm == SLIDING_WINDOW then
    micros = 2 * period
  elseif algorithm == FIXED_WINDOW then
    micros = ceil(tokens / rate) * period
  else
    micros = tokens * period
    if rate ~= 1 then micros = micros / rate * ROUNDED_TWICE end
  end
  return min(ceil((from + ceil(micros)) / 1000000), NEVER)
end

-- Rolling -------------------------------------------------------------------------------------------------------------

-- Refills the row up to `instant`.
local function roll_within(instant)
  if algorithm == TOKEN_BUCKET then
    local begun, elapsed = at, max(instant - at, 0)
    if elapsed >= period then
      local grains = (elapsed - fmod(elapsed, period)) / period
      spent, at = spent - grains * rate, at + grains * period
    end
    if repaid(instant) >= spent then spent, at = 0, max(begun, instant) end
    return
  end
  local past, here = index(at), index(instant)
  if algorithm == FIXED_WINDOW then
    if here > past then spent, at = max(spent - rate * (here - past), 0), boundary(here) end
    return
  end
  at = boundary(max(past, here))
  if here > past then spent, carry = 0, here - past == 1 and spent or 0 end
end

-- The ways to read a row that another quota wrote. See changed.rs.
local OWN, FASTER, WHOLE = 1, 2, 3

local function reading()
  local writer = row_stamp % TAGS
  if writer ~= algorithm then return WHOLE end
  if algorithm == TOKEN_BUCKET then return FASTER end
  if algorithm == FIXED_WINDOW then return OWN end
  local is_same_window = fmod(period, 1000000) == 0 and cleared(0, at) == clear and boundary(index(at)) == at
  return is_same_window and OWN or WHOLE
end

-- Rolls the row to `instant`, and converts it to the current quota. Returns whether another quota wrote it.
local function roll(instant)
  local was_foreign, read = is_foreign(instant), OWN
  if was_foreign then
    read = reading()
    if read == WHOLE and row_stamp % TAGS == SLIDING_WINDOW then spent = spent + carry end
    if read ~= OWN or algorithm ~= SLIDING_WINDOW then carry = 0 end
  elseif row_stamp ~= stamp or algorithm == SLIDING_WINDOW and boundary(index(at)) ~= at then
    spent, carry = 0, 0
  end
  if row_stamp ~= stamp then row_stamp, drop = stamp, is_lone and 0 or drop end
  local owed, written = spent, at
  if at - instant > fill then
    -- Drop a row that is far ahead of the clock, unless its debt would last until `written` even if incurred now.
    local before = carry
    at = instant
    roll_within(written - 1)
    if within(written - 1, 0) then
      spent, at, read = 0, instant, OWN
      if algorithm == SLIDING_WINDOW then carry = 0 end
    else
      spent, at, carry = owed, written, before
    end
  end
  if read == WHOLE then
    if algorithm == TOKEN_BUCKET then
      at = max(at, instant)
    elseif algorithm == FIXED_WINDOW then
      at = max(at, boundary(index(instant)))
    else
      at = boundary(index(max(at, instant)))
    end
    return was_foreign
  end
  roll_within(instant)
  if read == FASTER and instant > written and clear ~= NEVER then
    local left = ceil(owed * (clear_at - instant) / (clear_at - written))
    if left < spent_at(instant) then spent, at = left, instant end
  end
  return was_foreign
end

-- Leases: see lease.rs ------------------------------------------------------------------------------------------------

-- Rolls the row to `instant`, and raises its spent tokens to the outstanding tokens. Returns whether it raised them.
local function roll_to_floor(instant)
  local least = current + last
  roll(instant)
  local is_raised = spent_at(instant) < least
  if is_raised then
    if algorithm == TOKEN_BUCKET then
      at = max(at, instant)
    elseif algorithm == SLIDING_WINDOW then
      carry = max(carry - (least - spent), 0)
    end
    spent = least
  end
  clear = cleared(spent, at)
  clear_at = clear == NEVER and LAST or clear * 1000000
  return is_raised
end

-- Raises the spent tokens to the outstanding tokens. Leaves a row with at least as many spent tokens unchanged.
local function raise_to_floor()
  if current + last == 0 then return end
  local was_spent, was_at, was_carry, was_stamp, was_drop = spent, at, carry, row_stamp, drop
  local was_clear, was_clear_at = clear, clear_at
  if not roll_to_floor(now) then
    spent, at, carry, row_stamp, drop = was_spent, was_at, was_carry, was_stamp, was_drop
    clear, clear_at = was_clear, was_clear_at
  end
end

-- Removes leases that have ended.
local function settle_leases()
  turn = min(turn, now + LIFE)
  while turn <= now and current + last > 0 do
    roll_to_floor(turn)
    current, last, turn = 0, current, turn + LIFE
  end
  raise_to_floor()
end

-- Returns whether a number is valid as an instant or as a number of outstanding tokens.
local function is_whole(number)
  return number >= 0 and number <= LAST and number % 1 == 0
end

-- Loads a window, and settles its leases. Returns whether the value is a row with numbers in range.
local function load(row, window)
  drop = drops[row]
  if not drop then return false end
  local bytes, first, leases = changed[row * MAX_WINDOWS + window], 1, nil
  if bytes then
    leases = bytes:sub(WINDOW + 1)
  else
    bytes, first = found[row], HEADER + window * WINDOW + 1
    leases = sections[row] == 0 and '' or found_leases(row, window)
  end
  if first > 1 and window >= counts[row] then
    spent, at, carry, row_stamp, clear = 0, 0, 0, 0, 0
  else
    spent, at, carry, row_stamp, clear = unpack_bytes(WINDOW_FORMAT, bytes, first)
  end
  -- Other windows may need a later expiry, so the expiry is brought forward only if this is the only window.
  is_lone = window == 0 and counts[row] <= 1 and (width[row] or 1) == 1
  clear_at = clear == NEVER and LAST or clear * 1000000
  since, turn, current, last = 0, 0, 0, 0
  if not (spent >= 0 and spent <= LAST and carry >= 0 and carry <= LAST and is_whole(at)) then return false end
  if leases ~= '' then
    since, turn, current, last = unpack_bytes(LEASE_FORMAT, leases)
    if not (is_whole(since) and is_whole(turn) and is_whole(current) and is_whole(last)) then return false end
    settle_leases()
  end
  return true
end

-- Writing -------------------------------------------------------------------------------------------------------------

local function put(row, window, bytes)
  changed[row * MAX_WINDOWS + window], drops[row] = bytes, drop
  width[row] = max(width[row] or 1, window + 1)
end

-- Returns the row as the call leaves it. Empty windows at the end are removed.
local function row_after(row)
  local old, count, set = found[row], max(counts[row], width[row]), 0
  local windows, leases = {}, ''
  for window = 0, count - 1 do
    local bytes, offset = changed[row * MAX_WINDOWS + window], HEADER + window * WINDOW
    if not bytes then
      bytes = window < counts[row] and old:sub(offset + 1, offset + WINDOW) .. found_leases(row, window) or EMPTY
    end
    if #bytes > WINDOW then
      set, leases, bytes = set + 2 ^ window, leases .. bytes:sub(WINDOW + 1), bytes:sub(1, WINDOW)
    end
    windows[window + 1] = bytes
  end
  while count > 0 and windows[count] == EMPTY do count = count - 1 end
  if count == 0 then return NONE end
  return pack(HEADER_FORMAT, VERSION, count, set, drops[row]) .. table.concat(windows, '', 1, count) .. leases
end

-- Encodes the window. Changing the expiry costs as much as the rest of a write, so a row gets twice the time needed.
local function packed(needed)
  local leases = ''
  if current + last > 0 then
    -- The row must exist until its leases have ended and their tokens are repaid.
    needed = max(needed, cleared(current + last, current > 0 and turn + LIFE or turn))
    leases = pack(LEASE_FORMAT, since, turn, current, last)
  end
  if needed > drop then drop = min(max(floor(2 * needed - now / 1000000), needed), NEVER) end
  return pack(WINDOW_FORMAT, spent, at, carry, row_stamp, clear) .. leases
end

-- Encodes a window of the current quota. Returns `EMPTY` if nothing is spent.
local function state()
  if spent == 0 and carry == 0 then return EMPTY end
  clear = cleared(spent, at)
  local needed = clear
  if carry > 0 and algorithm ~= SLIDING_WINDOW then
    -- `carry` is needed until refunds of earlier charges would be forfeited.
    needed = max(clear, cleared(min(spent + carry, ceiling), now))
  end
  return packed(needed)
end

-- Taking --------------------------------------------------------------------------------------------------------------

-- Returns whether a reservation of `cost` fits and is due by `latest`.
local function is_due_by(cost, latest)
  if cost > ceiling or not within(now, ceiling - cost) then return false end
  local debt = spent + cost - limit
  if debt <= 0 then return true end
  if algorithm == TOKEN_BUCKET then
    -- Subtract whole grains first, so that only the remainder is rounded.
    local grains = floor(debt / rate)
    if grains * period > LAST then return false end
    local elapsed = latest - at - grains * period
    return elapsed >= 0 and elapsed * rate / period >= debt - grains * rate
  end
  local windows = ceil(debt / rate)
  return windows * period <= LAST and boundary(index(at) + windows) <= latest
end

-- Spends `cost` now, or reserves it if the reservation is due by `latest`. Returns whether the take was granted.
local function take(row, window, cost, latest)
  if not load(row, window) then return false end
  local was_foreign = roll(now)
  if cost <= limit and within(now, limit - cost) then
    -- A take with a cost of 0 spends nothing, so the row keeps its quota.
    if was_foreign and cost == 0 then return true end
  elseif latest < now or ceiling <= limit or not is_due_by(cost, latest) then
    return false
  end
  spent = spent + cost
  put(row, window, state())
  return true
end

local undo, undo_drop = {}, {}

-- Takes each line from the row `shift` rows after its own. Undoes the takes unless all are granted and `store` is set.
local function decide(lines, shift, store)
  local granted, tried = true, 0
  while granted and tried < #lines do
    tried = tried + 1
    local line = lines[tried]
    local row = line.row + shift
    undo[tried], undo_drop[tried] = changed[row * MAX_WINDOWS + line.window], drops[row]
    use(line.quota, line.start)
    granted = take(row, line.window, line.cost, line.latest)
  end
  if not (granted and store) then
    for nth = tried, 1, -1 do
      local line = lines[nth]
      local row = line.row + shift
      changed[row * MAX_WINDOWS + line.window], drops[row] = undo[nth], undo_drop[nth]
    end
  end
  return granted
end

-- Settling: see give_back.rs ------------------------------------------------------------------------------------------

local function reduce_by(given, outstanding, instant)
  if given == floor(given) and given < outstanding then
    spent = spent - given
    return true
  end
  local rest = max(outstanding - given, 0)
  local whole = floor(rest)
  if rest - whole > ROUNDING then whole = whole + 1 end
  if whole >= outstanding then return false end
  spent, at = whole, max(at, instant)
  return true
end

-- Settles a rolled row of the current quota. `r_` marks fields of the receipt, and `k_` those of the row.
local function settle_own(cost, actual, r_spent, r_at, r_carry, due, r_stamp)
  local instant = max(now, at)
  if actual >= cost then
    spent = min(spent + (actual - cost), LAST)
    return
  end
  local wanted = cost - actual
  if stamp ~= r_stamp then return end
  local k_spent, k_at, k_carry = spent, at, carry
  if algorithm == SLIDING_WINDOW then
    spent, at, carry = wanted, r_at, 0
    roll_within(instant)
    local given, given_before = spent, carry
    spent, at, carry = k_spent, k_at, k_carry
    if spent >= given and carry >= given_before then spent, carry = spent - given, carry - given_before end
    return
  end
  local outstanding = spent_at(instant)
  spent, at, carry = r_spent, r_at, r_carry
  roll(instant)
  local own = spent_at(instant)
  spent, at, carry = k_spent, k_at, k_carry
  if due > instant then
    if actual == 0 and math.abs(outstanding - own) <= ROUNDING then
      reduce_by(min(wanted, own), outstanding, instant)
    end
    return
  end
  if ceiling > limit and outstanding > limit or carry < r_carry then return end
  local left = own - min(carry - r_carry, r_spent - cost)
  if outstanding < left - ROUNDING then return end
  local given = min(wanted, left)
  local behind = outstanding - left > ROUNDING
  if given <= 0 or behind and carry + given > LAST then return end
  if reduce_by(given, outstanding, instant) and behind then carry = carry + given end
end

-- Gives back up to `tokens` of the spent tokens.
local function credit(tokens)
  local instant = max(now, at)
  if algorithm ~= SLIDING_WINDOW then
    reduce_by(tokens, spent_at(instant), instant)
    return
  end
  local earlier = floor(max(tokens - spent, 0) * period / weight(instant))
  spent, carry = max(spent - tokens, 0), max(carry - earlier, 0)
end

local function settle(row, window, cost, actual, ...)
  if not load(row, window) then return end
  if actual < cost and (...) == 0 then -- the record of a credit
    roll(now)
    credit(cost - actual)
    raise_to_floor()
    put(row, window, state())
    return
  end
  if row_stamp ~= stamp then
    if actual <= cost then return end
    if is_foreign(now) then
      -- As in `overrun`, the row keeps its quota and expires later.
      local sum, writer = min(spent + (actual - cost), LAST), row_stamp % TAGS
      if (writer == TOKEN_BUCKET or writer == FIXED_WINDOW) and clear ~= NEVER then
        local micros = max(clear_at - at, 0) * sum / spent
        clear = max(clear, min(floor((at + micros) * 1e-6) + 1, NEVER))
      end
      spent = sum
      put(row, window, packed(clear))
      return
    end
  end
  roll(now)
  settle_own(cost, actual, ...)
  raise_to_floor()
  put(row, window, state())
end

-- Leasing -------------------------------------------------------------------------------------------------------------

-- Returns the number of tokens that can be spent now.
local function available()
  local owed = algorithm == SLIDING_WINDOW and spent + weighted_carry(now) or spent_at(now)
  local guess = floor(min(max(limit - owed + ROUNDING, 0), limit))
  if guess > 0 and not within(now, limit - guess) then return guess - 1 end
  return guess
end

-- Applies a report, whose fields begin with `r_`.
local function report(r_since, r_turn, r_spent, r_unused)
  local left
  if r_since ~= since then return end
  if r_turn == turn then left = current elseif r_turn + LIFE == turn then left = last else return end
  local unused = min(r_unused, max(left - r_spent, 0))
  left = max(left - r_spent - unused, 0)
  if r_turn == turn then current = left else last = left end
  if unused > 0 then
    roll(now)
    spent = max(spent - unused, 0)
  end
end

-- Applies the reports, and then grants a lease of at most `tokens`. Returns whether a lease was granted.
local function lease(row, window, tokens, since_1, turn_1, spent_1, unused_1, ...)
  if not load(row, window) then return false end
  local had_leases = since > 0
  report(since_1, turn_1, spent_1, unused_1)
  report(...)
  if current + last == 0 then since, turn = 0, 0 end
  raise_to_floor()
  local was_spent, was_at, was_carry, was_stamp, was_drop = spent, at, carry, row_stamp, drop
  roll(now)
  local granted = min(tokens, floor(available() / 2), floor((floor(limit / 2) - current - last) / 2))
  if granted >= MIN_LEASE then
    spent = spent + granted
    if current + last == 0 then since, turn = now, now + LIFE end
    current = current + granted
  else
    spent, at, carry, row_stamp, drop = was_spent, was_at, was_carry, was_stamp, was_drop
    if not had_leases then return false end
  end
  put(row, window, row_stamp == stamp and state() or packed(clear))
  return granted >= MIN_LEASE
end

-- All operations ------------------------------------------------------------------------------------------------------

local operations, place, done = ARGV[2], 1, {}
while place <= #operations do
  local kind, times, count, stride, row, window, number, first
  kind, times, count, stride, place = unpack_bytes('<BHHH', operations, place)
  if kind == RESET then
    row, place = unpack_bytes('<H', operations, place)
    if drops[row] then
      local count = max(counts[row], width[row] or 1)
      for index = 0, count - 1 do changed[row * MAX_WINDOWS + index] = EMPTY end
      drops[row], width[row] = 0, count
    end
    done[#done + 1] = '\1'
  elseif kind == LEASE_TOKENS then
    local tokens, s1, t1, a1, u1, s2, t2, a2, u2
    row, window, number, first, tokens, s1, t1, a1, u1, s2, t2, a2, u2, place =
      unpack_bytes(REQUEST_FORMAT, operations, place)
    use(number, first)
    done[#done + 1] = lease(row, window, tokens, s1, t1, a1, u1, s2, t2, a2, u2) and '\1' or '\0'
  elseif kind == SETTLE then
    local cost, actual, r_spent, r_at, r_carry, due, r_stamp
    row, window, number, first, cost, actual, r_spent, r_at, r_carry, due, r_stamp, place =
      unpack_bytes('<HBHdddddddI4', operations, place)
    use(number, first)
    settle(row, window, cost, actual, r_spent, r_at, r_carry, due, r_stamp)
    done[#done + 1] = '\1'
  else
    local lines = {}
    for nth = 1, count do
      local cost, wait
      row, window, number, first, cost, wait, place = unpack_bytes(LINE_FORMAT, operations, place)
      local latest = wait >= 0 and min(now + wait, LAST - 1) or -1
      lines[nth] = { row = row, window = window, quota = number, start = first, cost = cost, latest = latest }
    end
    for nth = 0, times - 1 do
      done[#done + 1] = decide(lines, nth * stride, kind == ACQUIRE) and '\1' or '\0'
    end
  end
end

for i = 1, #KEYS do
  local key, old, new = KEYS[i], found[i], width[i] and row_after(i) or found[i]
  if new ~= old then
    if new == NONE then
      call('DEL', key)
    elseif new:sub(1, HEADER) == old:sub(1, HEADER) then
      call('SETRANGE', key, HEADER, new:sub(HEADER + 1)) -- keeps the expiry
    else
      local _, expires = unpack_bytes('<I4I4', new)
      call('SET', key, new, 'EXAT', expires)
    end
  end
end

return pack('<d', now) .. table.concat(done) .. table.concat(found)
