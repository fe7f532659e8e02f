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
-- When the server drops it, and from when nothing of it stands under the quota that wrote it: seconds, and `NEVER`.
local expires
local NEVER = 4294967295
-- Whether another quota wrote it, and something of it stood.
local was_foreign

-- All of them: as they were, and as they are to be; what is asked, and how much of it is read.
-- To be: 32 bytes if as it was, 33 if written anew (`GONE` = dropped), 16 if all but what was spent and when is as it was.
local before, rows, quotas, operations, place, known
local NONE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local GONE = '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
local ROW = '<dddI4I4x'
local PADDING = 32 -- Bytes behind the last operation.
local HEAD, LINE = 5, 28 -- Bytes before an operation's lines, and of a line of an acquire.
local ACQUIRE, SETTLE, RESET, BUCKETS = 1, 2, 3, 4 -- 0 is a peek.
local DENIED, DONE, ODD = '\0', '\1', '\2' -- What became of an operation; odd: is decided anew.

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

rows, quotas, operations, place = { unpack(before) }, ARGV[1], ARGV[2], 1
local done, count, length = {}, 0, #operations - PADDING
-- What does whatever is not the usual case: defined when it is met, since defining functions costs as much as decisions.
local one, acquire, settlement
-- Quotas that were read, by number, once there is more than one operation; rows as they were before an operation of several lines.
local known_quotas, undo

while place <= length do
  -- Of what most calls are, all at once: there are bytes enough behind the shortest operation for it to be read so.
  local kind, times, lines, row, number, begins, cost, wait, behind = unpack_('<BHHHHddd', operations, place)
  local first, odd = count + 1, kind ~= BUCKETS
  count = count + times
  if kind == BUCKETS then
    -- Line by line, each of all operations: their rows all differ, so it is as if each had been decided by itself.
    for line = 1, lines do
      if line > 1 then row, number, begins, cost, wait, behind = unpack_('<HHddd', operations, behind) end
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
      local fits, room = cost <= limit, limit - cost
      for nth = first, count do
        if line == 1 or done[nth] == DONE then
          local bytes, anew = rows[row], false
          if #bytes ~= 32 then
            if lines > 1 then
              undo = undo or {}
              undo[row] = bytes
            end
            if #bytes == 16 then bytes = bytes .. before[row]:sub(17) else anew = true end
          end
          local spent, at, carry, row_stamp, expires = unpack_('<dddI4I4', bytes)
          -- `roll`, `take` and `state` of a bucket in one, since calls cost more than what they do.
          local granted, became = fits, DENIED
          if row_stamp == stamp and at <= now and carry == 0 then
            local elapsed = now - at
            if elapsed >= period then
              local rest = fmod(elapsed, period)
              spent, at = spent - (elapsed - rest) / period * rate, now - rest
              elapsed = rest
            end
            local repaid = elapsed * rate / period
            if repaid >= spent then
              spent, at = 0, now
            elseif spent - room > repaid then
              granted = false
            end
          elseif row_stamp == 0 then
            spent, at, carry, row_stamp, expires = 0, now, 0, stamp, 0
          else
            granted, became, odd = false, ODD, true
          end
          if granted then
            if line == 1 then done[nth] = DONE end
            spent = spent + cost
            if spent > 0 then
              local instant = at + spent * period / rate
              if instant >= expires * 1000000 then
                rows[row] = pack(ROW, spent, at, carry, row_stamp, min(ceil(instant * 2e-6 - now * 1e-6) + 1, NEVER))
              elseif anew then
                rows[row] = pack(ROW, spent, at, carry, row_stamp, expires)
              else
                rows[row] = pack('<dd', spent, at)
              end
            else
              rows[row] = GONE
            end
          else
            done[nth] = became
            -- All or none: its other rows are as before.
            for other = 1, line - 1 do
              local changed = unpack_('<H', operations, place + HEAD + (other - 1) * LINE) + (nth - first) * lines
              rows[changed] = undo and undo[changed] or before[changed]
            end
          end
        end
        row = row + lines
      end
    end
  end
  if not odd then
    place = behind
  elseif kind == RESET then
    place = place + HEAD + 2
    rows[row] = GONE
    done[count] = DONE
  else
    if not one then
      local floor, max = math.floor, math.max

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
          if here > past then spent, at = max(spent - rate * (here - past), 0), boundary(here) end
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

      -- The instant from which the row counts nothing under any quota but its own.
      local function cleared()
        return expires == NEVER and LAST or expires * 1000000
      end

      local function is_foreign(instant)
        if row_stamp == stamp or row_stamp == 0 then return false end
        local owed = spent
        if fmod(row_stamp, 4) == 3 then owed = spent + carry end
        return owed > 0 and instant < cleared()
      end

      local FASTER, OWN, WHOLE = 1, 2, 3

      -- How a foreign row is read.
      local function reading()
        if fmod(row_stamp, 4) ~= algorithm then return WHOLE end
        if algorithm == TOKEN_BUCKET then return FASTER end
        if algorithm == FIXED_WINDOW then return OWN end
        local ends = min(ceil((at + 2 * period) / 1000000) * 1000000, LAST)
        return fmod(period, 1000000) == 0 and ends == cleared() and boundary(index(at)) == at and OWN or WHOLE
      end

      -- A row of another stamp becomes an own one, which stands at as much.
      local function roll(instant)
        local read = OWN
        local f_spent, f_at, f_clear
        was_foreign = false
        if row_stamp ~= stamp then
          if is_foreign(instant) then
            was_foreign, read = true, reading()
            if read == WHOLE and fmod(row_stamp, 4) == 3 then spent = spent + carry end
            if read ~= OWN or algorithm ~= 3 then carry = 0 end
            f_spent, f_at, f_clear = spent, at, cleared()
          else
            if row_stamp == 0 then at = 0 end
            spent, carry = 0, 0
          end
          -- What it is dropped by is the new quota's.
          row_stamp, expires = stamp, 0
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
            spent, at, read = 0, instant, OWN
            if algorithm == 3 then carry = 0 end
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
          return
        end
        pay_back(instant)
        if read == FASTER and instant > f_at and f_clear ~= LAST then
          local left = ceil(f_spent * (f_clear - instant) / (f_clear - f_at))
          if left < stands(instant) then spent, at = left, instant end
        end
      end

      -- Charges `more` to a foreign row, which stays its writer's: that one needs longer to be repaid.
      local function overrun(more)
        local sum, writer = min(spent + more, LAST), fmod(row_stamp, 4)
        if (writer == TOKEN_BUCKET or writer == FIXED_WINDOW) and expires ~= NEVER then
          local time = max(expires * 1000000 - at, 0) * sum / spent
          expires = max(expires, min(floor((at + time) * 1e-6) + 1, NEVER))
        end
        spent = sum
      end

      -- Operations

      -- Spends `cost`, if it fits at once or has a turn by `latest`; returns whether it did, and whether the row has to be
      -- written: not a foreign one of which nothing is spent.
      local function take(cost, latest)
        if cost <= limit and within(now, limit - cost) then
          spent = spent + cost
          return true, cost > 0 or not was_foreign
        end
        if latest < now or ceiling <= limit or cost > ceiling or not within(now, ceiling - cost) then return false end
        if not paid_by(latest, spent + cost, limit) then return false end
        spent = spent + cost
        return true, true
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
        if algorithm == TOKEN_BUCKET then
          local instant = at + spent * period / rate
          return receipts > 0 and max(instant, now + receipts * period / rate) or instant
        end
        return at + ceil(max(spent, receipts) / rate) * period
      end

      local function quota(number)
        if number == known then return end
        algorithm, stamp, rate, period, limit, ceiling, fill = unpack_('<BI4ddddd', quotas, number * 45 + 1)
        known = number
      end

      local function load(row, staged)
        local bytes = staged and staged[row] or rows[row]
        if #bytes == 16 then bytes = bytes .. before[row]:sub(17) end
        spent, at, carry, row_stamp, expires = unpack_('<dddI4I4', bytes)
      end

      -- The row as it is to be written. Its expiry is put off only when it has to be, and then for twice as long: putting it off
      -- costs the server as much as the rest of a write. Not a sliding window's: it tells the period to other quotas.
      local function state()
        if spent == 0 and carry == 0 then return GONE end
        local instant = clear()
        if algorithm == 3 then
          expires = min(ceil(instant / 1000000), NEVER)
        elseif instant >= expires * 1000000 then
          expires = min(ceil(instant * 2e-6 - now * 1e-6) + 1, NEVER)
        end
        return pack(ROW, spent, at, carry, row_stamp, expires)
      end

      -- Each take sees what those before it would spend; kept only if all are granted.
      function acquire(lines, shift, store)
        local granted, staged = true, {}
        for _ = 1, lines do
          local row, number, cost, wait
          row, number, start, cost, wait, place = unpack_('<HHddd', operations, place)
          row = row + shift
          if granted then
            quota(number)
            load(row, staged)
            roll(now)
            local changed
            granted, changed = take(cost, wait >= 0 and min(now + wait, LAST - 1) or -1)
            if changed then staged[row] = state() end
          end
        end
        if granted and store then
          for row, bytes in pairs(staged) do rows[row] = bytes end
        end
        return granted
      end

      -- The same of one line.
      function one(row, number, cost, wait)
        quota(number)
        load(row)
        roll(now)
        local granted, changed = take(cost, wait >= 0 and min(now + wait, LAST - 1) or -1)
        if changed then rows[row] = state() end
        return granted
      end

      function settlement()
        local row, number, cost, actual, r_spent, r_at, r_carry, r_stamp, due
        row, number, start, cost, actual, r_spent, r_at, r_carry, r_stamp, due, place =
          unpack_('<HHddddddI4d', operations, place)
        quota(number)
        load(row)
        if row_stamp ~= stamp then
          if actual <= cost then return end
          if is_foreign(now) then
            overrun(actual - cost)
            rows[row] = pack(ROW, spent, at, carry, row_stamp, expires)
            return
          end
        end
        settle(cost, actual, r_spent, r_at, r_carry, r_stamp, due)
        rows[row] = state()
      end
    end
    local head = place + HEAD
    if kind == SETTLE then
      place = head
      settlement()
      done[count] = DONE
    else
      for nth = first, count do
        if kind ~= BUCKETS or done[nth] == ODD then
          local granted
          if kind == ACQUIRE and lines == 1 then
            start = begins
            granted = one(row + nth - first, number, cost, wait)
          else
            place = head
            granted = acquire(lines, (nth - first) * lines, kind ~= 0)
          end
          done[nth] = granted and DONE or DENIED
        end
      end
      place = head + lines * LINE
    end
  end
end

local KEYS = KEYS
for row = 1, #KEYS do
  local bytes, old = rows[row], before[row]
  if #bytes == 16 then
    call('SETRANGE', KEYS[row], '0', bytes) -- a number would be printed with 17 digits
  elseif bytes == GONE then
    if old ~= NONE then call('DEL', KEYS[row]) end
  elseif #bytes == 33 then
    bytes = bytes:sub(1, 32)
    if bytes:sub(29) ~= old:sub(29) then
      call('SET', KEYS[row], bytes, 'EXAT', format('%d', (unpack_('<I4', bytes, 29))))
    elseif bytes ~= old then
      call('SETRANGE', KEYS[row], '0', bytes)
    end
  end
end

local told = pack('<d', now) .. (count == 1 and done[1] or concat(done))
if #KEYS == 1 then return told .. before[1] end
before[0] = told
return concat(before, '', 0)
