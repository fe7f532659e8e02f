-- Decides charges on rows, as `algorithm` does: same names, same operations in the same order, on the same doubles.
--
-- KEYS: rows. ARGV[1]: quotas; ARGV[2]: operations, in the order in which they came (see wire.rs for both).
-- Returns the time, a byte for each operation (1 = done), and every row as it was before: from these the caller finds the rest.

local ceil, min, fmod = math.ceil, math.min, math.fmod
local unpack_, pack, call, format, concat = struct.unpack, struct.pack, redis.call, string.format, table.concat

local LAST = 9007199254740991 -- 2^53 - 1: the last instant, and the most that is ever spent.
local ROUNDING = 1e-6
local TOKEN_BUCKET, FIXED_WINDOW = 1, 2 -- 3 is a sliding window.

local now -- microseconds
-- The quota at hand: algorithm, stamp, rate and period (a bucket's in lowest terms), capacity, ceiling, fill; start of windows.
local algorithm, stamp, rate, period, limit, ceiling, fill, start
-- The row at hand.
local spent, at, carry, row_stamp
-- When the server drops it: seconds.
local expires

-- All of them, and their quotas: as they were, as they are to be (`false` = dropped), what is asked and how much of it is read.
local before, rows, quotas, operations, place, known
local NONE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local PADDING = 32 -- Bytes behind the last operation.
local LINE = 28 -- Bytes of a line of an acquire.
local ACQUIRE, SETTLE, RESET, RUN = 1, 2, 3, 4 -- 0 is a peek.

-- All of them ---------------------------------------------------------------------------------------------------------------

local time = call('TIME')
now = time[1] * 1000000 + time[2]

if #KEYS == 1 then before = { call('GET', KEYS[1]) } else before = call('MGET', unpack(KEYS)) end
for i = 1, #KEYS do
  local bytes = before[i]
  if not bytes then
    before[i] = NONE
  elseif #bytes ~= 32 then
    return redis.error_reply('WRONGTYPE this is no row')
  end
end

rows, quotas, operations, place = {}, ARGV[1], ARGV[2], 1
local done, count, length = {}, 0, #operations - PADDING
-- What does whatever is not the usual case: defined when it is met, since defining functions costs as much as decisions.
local one, acquire, settlement
-- Quotas that were read, by number, once there is more than one operation; rows that an acquire has written, and as they were.
local known_quotas, undo_rows, undo_bytes

while place <= length do
  -- Of what most calls are, all at once: there are bytes enough behind the shortest operation for it to be read so.
  local kind, lines, row, number, begins, cost, wait, behind = unpack_('<BHHHddd', operations, place)
  local last, line, granted, undone = row + lines - 1, 1, true, 0
  -- A run, or the lines of an acquire, of buckets without a wait.
  local usual = kind == RUN or kind == ACQUIRE
  while usual do
    if number ~= known then
      local read = known_quotas and known_quotas[number]
      if read then
        algorithm, stamp, rate, period, limit, ceiling, fill = unpack(read)
      else
        algorithm, stamp, rate, period, limit, ceiling, fill = unpack_('<BI4ddddd', quotas, number * 45 + 1)
        -- Operations name the same quotas in turn; a lone one reads each once.
        if place > 1 then
          known_quotas = known_quotas or {}
          known_quotas[number] = { algorithm, stamp, rate, period, limit, ceiling, fill }
        end
      end
      known = number
    end
    local written = rows[row]
    local bytes = written
    if written == nil then
      bytes = before[row]
    elseif not written then
      bytes = NONE
    elseif #written == 16 then
      bytes = written .. before[row]:sub(17)
    end
    spent, at, carry, row_stamp, expires = unpack_('<dddI4I4', bytes)
    local fresh = row_stamp == 0
    if algorithm ~= TOKEN_BUCKET or wait >= 0 or not (fresh or row_stamp == stamp and at <= now and carry == 0) then
      usual = false
      break
    end
    -- `roll`, `take` and `state` of a bucket in one, since calls cost more than what they do.
    granted = cost <= limit
    local elapsed = now - at
    if fresh then
      at, row_stamp = now, stamp
    else
      if elapsed >= period then
        local rest = fmod(elapsed, period)
        spent, at = spent - (elapsed - rest) / period * rate, now - rest
        elapsed = rest
      end
      local repaid = elapsed * rate / period
      if repaid >= spent then
        spent, at = 0, now
      elseif spent - (limit - cost) > repaid then
        granted = false
      end
    end
    if granted then
      if kind == ACQUIRE and lines > 1 then
        if not undo_rows then undo_rows, undo_bytes = {}, {} end
        undone = undone + 1
        undo_rows[undone], undo_bytes[undone] = row, written
      end
      spent = spent + cost
      if spent > 0 then
        local instant = at + spent * period / rate
        if instant >= expires * 1000000 then
          expires = min(ceil(instant * 2e-6 - now * 1e-6) + 1, 4294967295)
          rows[row] = pack('<dddI4I4', spent, at, carry, row_stamp, expires)
        elseif fresh or written and #written == 32 then
          rows[row] = pack('<dddI4I4', spent, at, carry, row_stamp, expires)
        else
          rows[row] = pack('<dd', spent, at)
        end
      else
        rows[row] = false
      end
    end
    if kind == RUN then
      count = count + 1
      done[count] = granted and '\1' or '\0'
      row = row + 1
      if row > last then break end
    else
      line = line + 1
      if line > lines or not granted then break end
      row, number, begins, cost, wait, behind = unpack_('<HHddd', operations, behind)
    end
  end
  if not (usual and granted) then
    -- All or none. What is not usual is decided anew.
    for i = undone, 1, -1 do rows[undo_rows[i]] = undo_bytes[i] end
  end
  if usual and kind == RUN then
    place = behind
  elseif usual then
    place = place + 3 + lines * LINE
    count = count + 1
    done[count] = granted and '\1' or '\0'
  elseif kind == RESET then
    place = place + 5
    rows[row] = false
    count = count + 1
    done[count] = '\1'
  else
    if not one then
      local floor, max = math.floor, math.max

      -- A row as it stands by now.
      local function bytes_of(row)
        local bytes = rows[row]
        if bytes == nil then return before[row] end
        if bytes == false then return NONE end
        -- Of most that were charged, only what was spent and when has changed.
        if #bytes == 16 then return bytes .. before[row]:sub(17) end
        return bytes
      end

      -- Windows

      -- `start` is taken off first: a period more may be beyond what a double counts.
      local function index(instant)
        local since = instant - start
        if since < 0 then return 0 end
        return (since - fmod(since, period)) / period + 1
      end

      local function boundary(window)
        return max((window - 1) * period + start, 0)
      end

      local function in_view(count, elapsed)
        return min(count * (period - elapsed) / period, count)
      end

      local function elapsed_in_window(instant)
        if instant < at then return 0 end
        local since = instant - start
        if since < 0 then return since + period end
        return fmod(since, period)
      end

      -- The row

      -- Brings the row to `instant`: what is paid back is off it.
      local function pay_back(instant)
        if algorithm == TOKEN_BUCKET then
          local elapsed = max(instant - at, 0)
          local then_at = at
          if elapsed >= period then
            local grains = (elapsed - fmod(elapsed, period)) / period
            spent = spent - grains * rate
            at = min(at + grains * period, LAST)
          end
          if max(instant - at, 0) * rate / period >= spent then
            spent, at = 0, max(then_at, instant)
          end
          return
        end
        local past, here = index(at), index(instant)
        if algorithm == FIXED_WINDOW then
          if here <= past then
            at = boundary(past)
          else
            spent, at = max(spent - rate * (here - past), 0), boundary(here)
          end
          return
        end
        at = boundary(max(past, here))
        if here - past == 1 then
          spent, carry = 0, spent
        elseif here - past > 1 then
          spent, carry = 0, 0
        end
      end

      -- Whether no more than `level` stands as spent.
      local function within(instant, level)
        if algorithm == TOKEN_BUCKET then
          return spent - level <= max(instant - at, 0) * rate / period
        elseif algorithm == FIXED_WINDOW then
          return spent <= level
        end
        return in_view(carry, elapsed_in_window(instant)) <= level - spent
      end

      local function stands(instant)
        if algorithm == TOKEN_BUCKET then
          return max(spent - max(instant - at, 0) * rate / period, 0)
        elseif algorithm == FIXED_WINDOW then
          return spent
        end
        return spent + in_view(carry, elapsed_in_window(instant))
      end

      -- Whether a row that spent `total` has come down to `level` by `instant`: whole grains first, only the rest is rounded.
      local function paid_by(instant, total, level)
        local debt = total - level
        if debt <= 0 then return true end
        if algorithm == TOKEN_BUCKET then
          local grains = floor(debt / rate)
          if grains * period > LAST then return false end
          local elapsed = instant - at - grains * period
          return elapsed >= 0 and elapsed * rate / period >= debt - grains * rate
        end
        local windows = ceil(debt / rate)
        return windows * period <= LAST and boundary(index(at) + windows) <= instant
      end

      local function roll(instant)
        if row_stamp ~= stamp then
          if fmod(row_stamp, 4) == 3 and fmod(stamp, 4) == 3 then carry = min(carry, limit) else carry = 0 end
          spent, row_stamp = min(spent, limit), stamp
        elseif algorithm == 3 and boundary(index(at)) ~= at then
          spent, carry = 0, 0
        end
        if at - instant > fill then
          -- The clock was far ahead: forgiven, unless it would not be paid back by then even if it had been written now.
          local written, owed, other = at, spent, carry
          at = instant
          pay_back(written - 1)
          local clear = within(written - 1, 0)
          spent, at, carry = owed, written, other
          if clear then
            spent, at = 0, instant
            if algorithm == 3 then carry = 0 end
          end
        end
        pay_back(instant)
      end

      -- Operations

      -- Spends `cost`, if it fits at once or has a turn by `latest`; says whether it did.
      local function take(cost, latest)
        if cost <= limit and within(now, limit - cost) then
          spent = spent + cost
          return true
        end
        if latest < now or ceiling <= limit or cost > ceiling or not within(now, ceiling - cost) then return false end
        if not paid_by(latest, spent + cost, limit) then return false end
        spent = spent + cost
        return true
      end

      local function less(given, stood, instant)
        if given == floor(given) and given < stood then
          spent = spent - given
          return true
        end
        local rest = max(stood - given, 0)
        local whole = floor(rest)
        local part = rest - whole
        if part > ROUNDING then whole = whole + 1 end
        if whole >= stood then return false end
        spent, at = whole, max(at, instant)
        return true
      end

      -- The charge `receipt` truly cost `actual`.
      local function settle(cost, actual, r_spent, r_at, r_carry, r_stamp, due)
        if row_stamp ~= stamp and (actual <= cost or spent > limit) then
          spent = min(spent + max(actual - cost, 0), LAST)
          return
        end
        roll(now)
        local instant = max(now, at)
        if actual >= cost then
          spent = min(spent + (actual - cost), LAST)
          return
        end
        local wanted = cost - actual
        if stamp ~= r_stamp then return end
        local k_spent, k_at, k_carry = spent, at, carry
        if algorithm == 3 then
          spent, at, carry = wanted, r_at, 0
          pay_back(instant)
          local t_spent, t_carry = spent, carry
          spent, at, carry = k_spent, k_at, k_carry
          if spent < t_spent or carry < t_carry then return end
          spent, carry = max(spent - t_spent, 0), max(carry - t_carry, 0)
          return
        end
        local stood = stands(instant)
        spent, at, carry, row_stamp = r_spent, r_at, r_carry, r_stamp
        roll(instant)
        local own = stands(instant)
        spent, at, carry = k_spent, k_at, k_carry
        if due > instant then
          if actual == 0 and math.abs(stood - own) <= ROUNDING then less(min(wanted, own), stood, instant) end
          return
        end
        if ceiling > limit and stood > limit then return end
        if carry < r_carry then return end
        local left = own - min(carry - r_carry, r_spent - cost)
        if stood < left - ROUNDING then return end
        local given = min(wanted, left)
        if given <= 0 then return end
        local behind = stood - left > ROUNDING
        if behind and carry + given > LAST then return end
        if less(given, stood, instant) and behind then carry = carry + given end
      end

      -- The instant from which the row is worth nothing to anybody.
      local function clear()
        if algorithm == 3 then return at + 2 * period end
        -- What was given back is remembered as long as any receipt made before now could be worth something.
        local receipts = carry > 0 and min(spent + carry, ceiling) or 0
        if algorithm == TOKEN_BUCKET then return max(at + spent * period / rate, now + receipts * period / rate) end
        return at + ceil(max(spent, receipts) / rate) * period
      end

      local function quota(number)
        if number == known then return end
        algorithm, stamp, rate, period, limit, ceiling, fill = unpack_('<BI4ddddd', quotas, number * 45 + 1)
        known = number
      end

      local function load(row, staged)
        local bytes = staged and staged[row]
        if bytes == nil then bytes = bytes_of(row) end
        spent, at, carry, row_stamp, expires = unpack_('<dddI4I4', bytes or NONE)
      end

      -- The row as it is to be written. Its expiry is put off only when it has to be, and then for twice as long: putting it off
      -- costs the server as much as the rest of a write.
      local function state(row)
        if spent == 0 and carry == 0 then return false end
        local instant = clear()
        if instant >= expires * 1000000 then
          expires = min(ceil(instant * 2e-6 - now * 1e-6) + 1, 4294967295)
        end
        return pack('<dddI4I4', spent, at, carry, row_stamp, expires)
      end

      -- Each take sees what those before it would spend; kept only if all are granted.
      function acquire(lines, store)
        local granted, staged = true, {}
        for _ = 1, lines do
          local row, number, cost, wait
          row, number, start, cost, wait, place = unpack_('<HHddd', operations, place)
          if granted then
            quota(number)
            load(row, staged)
            roll(now)
            granted = take(cost, wait >= 0 and min(now + wait, LAST - 1) or -1)
            staged[row] = state(row)
          end
        end
        if granted and store then
          for row, bytes in pairs(staged) do rows[row] = bytes end
        end
        return granted
      end

      -- One of a run.
      function one(row, number, cost, wait)
        quota(number)
        load(row)
        roll(now)
        if not take(cost, wait >= 0 and min(now + wait, LAST - 1) or -1) then return false end
        rows[row] = state(row)
        return true
      end

      function settlement()
        local row, number, cost, actual, r_spent, r_at, r_carry, r_stamp, due
        row, number, start, cost, actual, r_spent, r_at, r_carry, r_stamp, due, place =
          unpack_('<HHddddddI4d', operations, place)
        quota(number)
        load(row)
        settle(cost, actual, r_spent, r_at, r_carry, r_stamp, due)
        rows[row] = state(row)
      end
    end
    if kind == RUN then
      -- What is left of it.
      start, place = begins, behind
      for row = row, last do
        count = count + 1
        done[count] = one(row, number, cost, wait) and '\1' or '\0'
      end
    else
      place = place + 3
      if kind == SETTLE then settlement() else granted = acquire(lines, kind == ACQUIRE) end
      count = count + 1
      done[count] = (kind == SETTLE or granted) and '\1' or '\0'
    end
  end
end

local KEYS = KEYS
for row = 1, #KEYS do
  local bytes, old = rows[row], before[row]
  if bytes == false then
    if old ~= NONE then call('DEL', KEYS[row]) end
  elseif bytes and bytes ~= old then
    if #bytes == 32 and bytes:sub(29) ~= old:sub(29) then
      call('SET', KEYS[row], bytes, 'EXAT', format('%d', (unpack_('<I4', bytes, 29))))
    else
      call('SETRANGE', KEYS[row], '0', bytes) -- a number would be printed with 17 digits
    end
  end
end

local told = pack('<d', now) .. (count == 1 and done[1] or concat(done))
if #KEYS == 1 then return told .. before[1] end
before[0] = told
return concat(before, '', 0)
