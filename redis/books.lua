#!lua name=cloche
-- redis/books.lua - the books of Cloche: units, leases, quotas, tenants, keys; see redis/books.h.
--
-- One lease = one attempt of one unit = one reservation = one expiry.  Every function is one atomic
-- step, may be repeated with the same arguments, and converts all arguments before its first write
-- (Redis does not roll back).  Only the server's TIME counts.
--
-- Keys of a tenant T, all in the slot {T}:
--   {T}:q      HASH  L limits, U usage, B opaque blob, C created ms
--   {T}:l      HASH  lease id -> lease record        {T}:x  ZSET  lease id -> expiry ms
--   {T}:u:<id> HASH  h header, s spec, t terminal,   {T}:n  ZSET  units that have not ended, by id
--                    b how it began to run: version, ms, opaque blob
--   {T}:w      ZSET  waiting units by position       {T}:o  ZSET  reaped units, by time
--   {T}:i      ZSET  all units, by id                {T}:t  ZSET  ended units -> time to forget
--   {T}:a      ZSET  ended units, by id, whose end the audit log may not have
--   {T}:p:<k>  STRING idempotency key -> version, SHA-256 of the body, unit id
-- Global: cloche:tenants, cloche:queued, cloche:keys*, cloche:workers*, cloche:enroll:*, cloche:head:*
--   cloche:lead:<group>       STRING who leads the schedulers of a group
--   cloche:schedulers:<group> HASH   their ids -> when they asked last, and what they say of themselves
--
-- The last argument of every function but `version` is the caller's group and term: "<group> <epoch>".
-- What comes from another term than the group's present one is answered DEPOSED before anything is
-- read or written, so a scheduler that stood still while another took its place changes nothing.
--
-- A lease holds what its unit's header needs.  While the unit is PAUSED it holds no vCPU, memory and
-- sandbox, and more of disk: its VM's memory lies there.  What is released is what the lease record
-- says.  `burnt` there is the CPU time, as if all of its vCPUs had been busy, up to `start`: without
-- vCPUs the clock stands still, and a resume sets `start` anew.  While it is PAUSED the lease may end
-- much later than a renewal would have it: a pause can put its end off, a resume sets it back.
--
-- Numbers are doubles, exact to 2^53 (microseconds since 1970 until 2255).  Never tostring() or ..
-- a clock: %.14g loses digits.  redis.* and struct.* do not exist while a library loads: they are
-- used inside functions only.
local VERSION, DIGEST = @VERSION@, '@DIGEST@'
local REC = 1                      -- version byte of every record
local FL = '<Bdddddddddd'          -- limits: 6 dimensions, period ms, rate us, burst, queue
local FU = '<Bddddddddddddd'       -- usage: 6 held, spent cpu, spent egress, period, fence, tat, reaped, 0
local FR = '<Bddddddddds'          -- lease: 6 dimensions, fence, start ms, burnt ms, unit
local FH = '<BBBBBddddddddddddss'  -- header: version kind state outcome flags, attempt, 6 dimensions,
                                   -- created us, changed us, fence, settled fence, position, lease, worker
local FE = '<Bdddss'               -- leader: epoch, until ms, since ms, id, proof
local OK, REPLAY, QUOTA, RATE, NOTFOUND, EXISTS, QUEUE, STATE, CANCEL, NEWER, INVALID, UNAUTH, DEPOSED =
      0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12
local QUEUED, STARTING, RUNNING, PAUSED, ENDED = 1, 2, 3, 4, 5
local F_CANCEL, F_REAPED, F_UNMADE = 1, 2, 4
local JOB = 1
local STALE, ACCEPTED, ALREADY = 0, 1, 2
local DIMS = {'vcpu_milli', 'memory_mib', 'sandboxes', 'cpu_ms', 'egress_bytes', 'disk_mib'}
local QUEUED_KEY = 'cloche:queued'
local REAP_MAX, FORGET_MAX, SCAN_MAX = 128, 64, 2000
local NOTE_MS, OTHERS_MS, SCHEDULER_MS = 3000, 10000, 60000 -- how often it is noted that one is there; who was not for so long does not count, is forgotten
local FREE_SOON_MS = 1000          -- nobody knows when a running unit ends; then is a good time to ask again
local BIG = 9007199254740992

local function now_us()
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

-- A whole number from 0 to 2^53, or an error that Redis hands back before anything was written.
local function num(a)
  local n = tonumber(a)
  if not n or n < 0 or n > BIG or n ~= math.floor(n) then
    error({err = 'CLINVALID bad number'})
  end
  return n
end

local function check(packed)
  if string.byte(packed, 1) > REC then error({err = 'CLNEWER record version ' .. string.byte(packed, 1)}) end
  return packed
end

-- ---- records ---------------------------------------------------------------------------------

local function limits_unpack(l)
  local _, v, m, s, c, e, d, period, rate, burst, queue = struct.unpack(FL, check(l))
  return {dim = {v, m, s, c, e, d}, period = period, rate = rate, burst = burst, queue = queue}
end

local function limits_of(T)
  local l = redis.call('HGET', T .. ':q', 'L')
  return l and limits_unpack(l)
end

local function usage_unpack(u, L, now_ms)
  local U = {held = {0, 0, 0, 0, 0, 0}, cpu = 0, egress = 0, period = 0, fence = 0, tat = 0, reaped = 0}
  if u then
    local _, v, m, s, c, e, d, cpu, egress, period, fence, tat, reaped = struct.unpack(FU, check(u))
    U = {held = {v, m, s, c, e, d}, cpu = cpu, egress = egress, period = period, fence = fence,
         tat = tat, reaped = reaped}
  end
  local period = math.floor(now_ms / L.period)
  if U.period ~= period then U.cpu, U.egress, U.period = 0, 0, period end
  return U
end

-- Limits and usage of a tenant by one look-up; nil if there is no such tenant.
local function account_of(T, now_ms)
  local q = redis.call('HMGET', T .. ':q', 'L', 'U')
  if not q[1] then return nil end
  local L = limits_unpack(q[1])
  return L, usage_unpack(q[2], L, now_ms)
end

local function usage_of(T, L, now_ms)
  return usage_unpack(redis.call('HGET', T .. ':q', 'U'), L, now_ms)
end

local function usage_save(T, U)
  local h = U.held
  redis.call('HSET', T .. ':q', 'U', struct.pack(FU, REC, h[1], h[2], h[3], h[4], h[5], h[6], U.cpu,
                                                U.egress, U.period, U.fence, U.tat, U.reaped, 0))
end

local function header_of(T, id)
  local p = redis.call('HGET', T .. ':u:' .. id, 'h')
  if not p then return nil end
  local _, kind, state, outcome, flags, attempt, v, m, s, c, e, d, created, changed, fence, settled,
        position, lease, worker = struct.unpack(FH, check(p))
  return {kind = kind, state = state, outcome = outcome, flags = flags, attempt = attempt,
          need = {v, m, s, c, e, d}, created = created, changed = changed, fence = fence,
          settled = settled, position = position, lease = lease, worker = worker}
end

local function header_pack(h)
  local n = h.need
  return struct.pack(FH, REC, h.kind, h.state, h.outcome, h.flags, h.attempt, n[1], n[2], n[3], n[4],
                     n[5], n[6], h.created, h.changed, h.fence, h.settled, h.position, h.lease, h.worker)
end

local function header_save(T, id, h, us)
  h.changed = us
  redis.call('HSET', T .. ':u:' .. id, 'h', header_pack(h))
end

local function flag(h, bit_) return h.flags % (bit_ * 2) >= bit_ end
local function flag_set(h, bit_) if not flag(h, bit_) then h.flags = h.flags + bit_ end end
local function flag_clear(h, bit_) if flag(h, bit_) then h.flags = h.flags - bit_ end end

local function lease_of(T, lease)
  local p = redis.call('HGET', T .. ':l', lease)
  if not p then return nil end
  local _, v, m, s, c, e, d, fence, start, burnt, unit = struct.unpack(FR, check(p))
  return {need = {v, m, s, c, e, d}, fence = fence, start = start, burnt = burnt, unit = unit}
end

local function lease_save(T, lease, rec)
  local n = rec.need
  redis.call('HSET', T .. ':l', lease, struct.pack(FR, REC, n[1], n[2], n[3], n[4], n[5], n[6], rec.fence,
                                                   rec.start, rec.burnt, rec.unit))
end

-- ---- small steps -----------------------------------------------------------------------------

local function wait_add(T, id, position)
  if redis.call('ZADD', T .. ':w', position, id) == 1 then redis.call('INCR', QUEUED_KEY) end
end
local function wait_remove(T, id)
  if redis.call('ZREM', T .. ':w', id) == 1 then redis.call('DECR', QUEUED_KEY) end
end

-- Units whose day is over leave the indexes, a few at every eighth call: more than come.
local function forget_old(T, us)
  if us % 8 ~= 0 then return end
  local ms = math.floor(us / 1000)
  local old = redis.call('ZRANGEBYSCORE', T .. ':t', '-inf', ms, 'LIMIT', 0, FORGET_MAX)
  if #old > 0 then
    redis.call('ZREM', T .. ':i', unpack(old))
    redis.call('ZREM', T .. ':t', unpack(old))
  end
end

-- The most that it can have burnt of the CPU time that it holds.
local function burnt(rec, ms)
  return math.min(rec.need[4], rec.burnt + math.floor(math.max(0, ms - rec.start) * rec.need[1] / 1000))
end

local function release(T, U, lease, rec, cpu, egress)
  for i = 1, 6 do U.held[i] = U.held[i] - rec.need[i] end
  U.cpu, U.egress = U.cpu + cpu, U.egress + egress
  redis.call('HDEL', T .. ':l', lease)
  redis.call('ZREM', T .. ':x', lease)
end

-- When the lease ends, in ms; nil = it has ended.
local function expiry_of(T, lease, ms)
  local x = tonumber(redis.call('ZSCORE', T .. ':x', lease) or 0)
  return x > ms and x or nil
end

local function expiry_set(T, lease, x) redis.call('ZADD', T .. ':x', 'XX', x, lease) end

-- Take back what expired leases held; their units become reaped.  True if there were any.
local function reap_expired(T, U, us)
  local ms = math.floor(us / 1000)
  local gone = redis.call('ZRANGEBYSCORE', T .. ':x', '-inf', ms, 'LIMIT', 0, REAP_MAX)
  for _, lease in ipairs(gone) do
    local rec = lease_of(T, lease)
    if rec then
      release(T, U, lease, rec, burnt(rec, ms), rec.need[5])
      U.reaped = U.reaped + 1
      local h = header_of(T, rec.unit)
      if h then
        flag_set(h, F_REAPED)
        header_save(T, rec.unit, h, us)
        redis.call('ZADD', T .. ':o', ms, rec.unit)
      end
    else
      redis.call('ZREM', T .. ':x', lease)
    end
  end
  return #gone > 0
end

local function end_unit(T, id, h, us, outcome, blob, keep)
  local ms = math.floor(us / 1000)
  if flag(h, F_REAPED) then redis.call('ZREM', T .. ':o', id) end
  h.state, h.outcome, h.changed = ENDED, outcome, us
  flag_clear(h, F_REAPED)
  redis.call('HSET', T .. ':u:' .. id, 'h', header_pack(h), 't', blob)
  redis.call('PEXPIRE', T .. ':u:' .. id, keep)
  redis.call('ZREM', T .. ':n', id)
  redis.call('ZADD', T .. ':a', 0, id)
  redis.call('ZADD', T .. ':t', ms + keep, id)
  forget_old(T, us)
end

local function over(U, L, need)
  for i = 1, 6 do
    local spent = (i == 4 and U.cpu) or (i == 5 and U.egress) or 0
    if need[i] > 0 and U.held[i] + spent + need[i] > L.dim[i] then return i end
  end
  return nil
end

-- The dimension that lacks after expired leases have been taken back, and ms until it can be there
-- (0 = when something ends).
local function lacks(T, U, L, need, us)
  local d = over(U, L, need)
  if d and reap_expired(T, U, us) then d = over(U, L, need) end
  if not d then return nil end
  if (d == 4 or d == 5) and U.held[d] == 0 then return d, (U.period + 1) * L.period - math.floor(us / 1000) end
  return d, 0
end

-- Give the unit its lease and take what it needs; the caller saves U and h.  -> expiry in ms
local function take(T, U, id, h, lease, worker, us, ttl)
  local n, ms = h.need, math.floor(us / 1000)
  U.fence = math.max(U.fence + 1, us) -- monotone even when the server lost its last writes
  lease_save(T, lease, {need = n, fence = U.fence, start = ms, burnt = 0, unit = id})
  redis.call('ZADD', T .. ':x', ms + ttl, lease)
  h.state, h.fence, h.attempt, h.lease, h.worker = STARTING, U.fence, h.attempt + 1, lease, worker
  for i = 1, 6 do U.held[i] = U.held[i] + n[i] end
  return ms + ttl
end

-- ---- units -----------------------------------------------------------------------------------

-- What the books know of a unit that was admitted before.
local function admitted(id, h, verdict)
  if not h then return {verdict, id, ENDED, 0, 0} end
  return {verdict, id, h.state, h.fence, h.attempt}
end

-- Spend one token of the rate; ms until there is one, or nil.
local function over_rate(U, L, us)
  if L.rate == 0 then return nil end
  local tat = math.max(U.tat, us)
  local early = tat + L.rate - L.rate * L.burst - us
  if early > 0 then return math.ceil(early / 1000) end
  U.tat = tat + L.rate
  return nil
end

-- A new unit: the refusal that it gets, or else whether it may take its lease at once.  Nobody
-- overtakes a unit of the same tenant that waits.
local function place(T, U, L, need, us, refuse, lease, global_max)
  for i = 1, 6 do
    if need[i] > L.dim[i] then return {QUOTA, DIMS[i], 0} end
  end
  local d, retry
  if refuse or lease ~= '' then d, retry = lacks(T, U, L, need, us) end
  if d and refuse then return {QUOTA, DIMS[d], retry > 0 and retry or FREE_SOON_MS} end
  local waiting = redis.call('ZCARD', T .. ':w')
  if lease ~= '' and not d and waiting == 0 then return nil, true end
  if waiting >= L.queue then return {QUEUE, 'tenant'} end
  if global_max > 0 and tonumber(redis.call('GET', QUEUED_KEY) or 0) >= global_max then
    return {QUEUE, 'global'}
  end
  return nil, false
end

-- Did the call that asked for the unit fail?  Then its idempotency key is free: one that is told to ask
-- again gets a new unit.  A job is there from its admission on, anything else when it runs.
local function made_nothing(T, id, h)
  if not h then return false end
  return flag(h, F_UNMADE) or h.kind ~= JOB and h.state == ENDED and redis.call('HEXISTS', T .. ':u:' .. id, 'b') == 0
end

-- admit id kind need*6 spec idem hash global_max keep refuse lease worker ttl_ms
-- refuse = 1: over its quota it is refused.  With a lease it is reserved in the same step if its
-- tenant has the quota and nothing of it waits.
local function admit(K, A)
  local T, id, kind, need = K[1], A[1], num(A[2]), {}
  for i = 1, 6 do need[i] = num(A[2 + i]) end
  local global_max, keep, refuse, lease, ttl = num(A[12]), num(A[13]), num(A[14]) == 1, A[15], num(A[17])
  local us = now_us()
  local L, U = account_of(T, math.floor(us / 1000))
  if not L then return {NOTFOUND} end
  if A[10] ~= '' then
    local p = redis.call('GET', T .. ':p:' .. A[10])
    if p then
      local first = string.sub(check(p), 34)
      local h = header_of(T, first)
      if first == id or not made_nothing(T, first, h) then
        if string.sub(p, 2, 33) ~= A[11] then return {EXISTS} end
        return admitted(first, h, first == id and OK or REPLAY)
      end
    end
  end
  local old = header_of(T, id)
  if old then return admitted(id, old, OK) end
  if lease ~= '' and redis.call('HEXISTS', T .. ':l', lease) == 1 then return {INVALID} end
  local early = over_rate(U, L, us)
  if early then return {RATE, early} end
  local h = {kind = kind, state = QUEUED, outcome = 0, flags = 0, attempt = 0, need = need,
             created = us, changed = us, fence = 0, settled = 0, position = us, lease = '', worker = ''}
  local refusal, goes = place(T, U, L, need, us, refuse, lease, global_max)
  if goes then take(T, U, id, h, lease, A[16], us, ttl) end
  usage_save(T, U)
  if refusal then return refusal end
  if not goes then wait_add(T, id, us) end
  redis.call('HSET', T .. ':u:' .. id, 'h', header_pack(h), 's', A[9])
  redis.call('ZADD', T .. ':n', 0, id)
  redis.call('ZADD', T .. ':i', 0, id)
  if A[10] ~= '' then
    redis.call('SET', T .. ':p:' .. A[10], string.char(REC) .. A[11] .. id, 'PX', keep)
  end
  forget_old(T, us)
  return admitted(id, h, OK)
end

-- reserve id lease worker ttl_ms
local function reserve(K, A)
  local T, id, lease, worker, ttl = K[1], A[1], A[2], A[3], num(A[4])
  local us = now_us()
  local L, U = account_of(T, math.floor(us / 1000))
  local h = L and header_of(T, id)
  if not h then return {NOTFOUND} end
  if h.state ~= QUEUED then
    if h.lease == lease and lease_of(T, lease) then
      return {REPLAY, h.fence, h.attempt, tonumber(redis.call('ZSCORE', T .. ':x', lease))}
    end
    return {STATE, h.state}
  end
  if h.lease == lease then return {STATE, h.state} end -- that lease was settled already
  if flag(h, F_CANCEL) then return {CANCEL} end
  if redis.call('HEXISTS', T .. ':l', lease) == 1 then return {INVALID} end
  local d, retry = lacks(T, U, L, h.need, us)
  if d then
    usage_save(T, U)
    return {QUOTA, DIMS[d], retry}
  end
  local expires = take(T, U, id, h, lease, worker, us, ttl)
  header_save(T, id, h, us)
  wait_remove(T, id)
  usage_save(T, U)
  return {OK, h.fence, h.attempt, expires}
end

-- started id lease fence about
local function started(K, A)
  local T, fence = K[1], num(A[3])
  local rec = lease_of(T, A[2])
  if not rec or rec.fence ~= fence or rec.unit ~= A[1] then return {OK, STALE} end
  local p = redis.call('HGET', T .. ':u:' .. A[1], 'h')
  if not p then return {OK, STALE} end
  if string.byte(check(p), 3) ~= STARTING then return {OK, ALREADY} end -- FH: the third byte is the state
  redis.call('HSET', T .. ':u:' .. A[1], 'h', string.sub(p, 1, 2) .. string.char(RUNNING) .. string.sub(p, 4),
             'b', struct.pack('<Bd', REC, math.floor(now_us() / 1000)) .. A[4])
  return {OK, ACCEPTED}
end

-- The unit's lease holds `need` from now on.
local function hold_instead(T, U, lease, rec, need, ms)
  rec.burnt, rec.start = burnt(rec, ms), ms
  for i = 1, 6 do U.held[i] = U.held[i] - rec.need[i] + need[i] end
  rec.need = need
  lease_save(T, lease, rec)
end

-- Between the states c.from and c.to.  c.sizes(need) -> what it must find room for, unless c.force,
-- and what it holds then; c.ends(ms, x) -> when its lease ends then, which ended at x.
local function change_rest(K, A, c)
  local T, id, lease, fence = K[1], A[1], A[2], num(A[3])
  local h = header_of(T, id)
  if not h then return {NOTFOUND} end
  local rec = lease_of(T, lease)
  if not rec or rec.fence ~= fence or rec.unit ~= id then return {OK, STALE} end
  local us = now_us()
  local ms = math.floor(us / 1000)
  local x = expiry_of(T, lease, ms)
  if h.state == c.to then
    if not x then return {OK, STALE} end
    expiry_set(T, lease, c.ends(ms, x))
    return {OK, ALREADY}
  end
  if h.state ~= c.from then return {STATE, h.state} end
  local L, U = account_of(T, ms)
  local more, need = c.sizes(h.need)
  local d = not c.force and lacks(T, U, L, more, us)
  if d then
    usage_save(T, U)
    return {QUOTA, DIMS[d], need[d] > L.dim[d] and 0 or FREE_SOON_MS}
  end
  if not x then -- it is among the expired ones, which may have been taken back just now
    usage_save(T, U)
    return {OK, STALE}
  end
  hold_instead(T, U, lease, rec, need, ms)
  expiry_set(T, lease, c.ends(ms, x))
  usage_save(T, U)
  h.state = c.to
  header_save(T, id, h, us)
  return {OK, ACCEPTED}
end

-- pause id lease fence disk_mib force lease_ms; its lease ends no sooner than in lease_ms
local function pause(K, A)
  local disk, force, lease_ms = num(A[4]), num(A[5]) == 1, num(A[6])
  return change_rest(K, A, {
    from = RUNNING, to = PAUSED, force = force,
    sizes = function(n) return {0, 0, 0, 0, 0, disk}, {0, 0, 0, n[4], n[5], n[6] + disk} end,
    ends = function(ms, x) return math.max(x, ms + lease_ms) end,
  })
end

-- resume id lease fence force lease_ms; its lease ends in lease_ms, however long it was
local function resume(K, A)
  local force, lease_ms = num(A[4]) == 1, num(A[5])
  return change_rest(K, A, {
    from = PAUSED, to = RUNNING, force = force,
    sizes = function(n) return {n[1], n[2], n[3], 0, 0, 0}, n end,
    ends = function(ms) return ms + lease_ms end,
  })
end

-- move id lease fence lease2 worker2: what a PAUSED unit's lease holds is held by lease2 at worker2
-- from now on, with the fence that follows and until the same time.  Repeated, it may run there by now.
local function move(K, A)
  local T, id, lease, fence, lease2, worker2 = K[1], A[1], A[2], num(A[3]), A[4], A[5]
  local us = now_us()
  local ms = math.floor(us / 1000)
  local _, U = account_of(T, ms)
  local h = U and header_of(T, id)
  if not h then return {NOTFOUND} end
  if h.lease == lease2 and h.fence == fence + 1 and h.worker == worker2 then
    return {OK, expiry_of(T, lease2, ms) and ALREADY or STALE}
  end
  local rec = lease_of(T, lease)
  local x = expiry_of(T, lease, ms)
  if not rec or rec.fence ~= fence or rec.unit ~= id or not x then return {OK, STALE} end
  if h.state ~= PAUSED or flag(h, F_CANCEL) then return {STATE, h.state} end -- cancelled: it ends here
  if redis.call('HEXISTS', T .. ':l', lease2) == 1 then return {INVALID} end
  redis.call('HDEL', T .. ':l', lease)
  redis.call('ZREM', T .. ':x', lease)
  rec.fence = fence + 1
  lease_save(T, lease2, rec)
  redis.call('ZADD', T .. ':x', x, lease2)
  U.fence = math.max(U.fence, rec.fence) -- so that the next attempt's is above it
  usage_save(T, U)
  h.lease, h.fence, h.worker = lease2, rec.fence, worker2
  header_save(T, id, h, us)
  return {OK, ACCEPTED}
end

-- renew ttl_ms (lease fence)* -> one byte a pair; an expired lease is not revived
local function renew(K, A)
  local T, ttl, fences = K[1], num(A[1]), {}
  for i = 3, #A, 2 do fences[i] = num(A[i]) end
  local ms = math.floor(now_us() / 1000)
  local out = {}
  for i = 2, #A, 2 do
    local rec = lease_of(T, A[i])
    local held = 0
    if rec and rec.fence == fences[i + 1] then
      local x = expiry_of(T, A[i], ms)
      if x then
        if ms + ttl > x then expiry_set(T, A[i], ms + ttl) end
        held = 1
      end
    end
    out[#out + 1] = string.char(held)
  end
  return {OK, table.concat(out)}
end

-- finish id lease fence cpu_ms egress outcome terminal keep
local function finish(K, A)
  local T, id, lease, fence = K[1], A[1], A[2], num(A[3])
  local cpu, egress, outcome, keep = num(A[4]), num(A[5]), num(A[6]), num(A[8])
  local h = header_of(T, id)
  if not h then return {NOTFOUND} end
  local rec = lease_of(T, lease)
  if not rec or rec.fence ~= fence or rec.unit ~= id then
    return {OK, (h.state == ENDED and h.settled == fence) and ALREADY or STALE}
  end
  local us = now_us()
  local _, U = account_of(T, math.floor(us / 1000))
  release(T, U, lease, rec, cpu, egress)
  usage_save(T, U)
  h.settled = fence
  end_unit(T, id, h, us, outcome, A[7], keep)
  return {OK, ACCEPTED}
end

-- requeue id lease fence cpu_ms egress
local function requeue(K, A)
  local T, id, lease, fence, cpu, egress = K[1], A[1], A[2], num(A[3]), num(A[4]), num(A[5])
  local h = header_of(T, id)
  if not h then return {NOTFOUND} end
  if h.fence ~= fence or h.lease ~= lease then return {OK, STALE} end
  if h.settled == fence then return {OK, ALREADY} end
  if h.state == ENDED then return {OK, STALE} end
  local us = now_us()
  local rec = lease_of(T, lease)
  if rec then
    local L = limits_of(T)
    local U = usage_of(T, L, math.floor(us / 1000))
    release(T, U, lease, rec, cpu, egress)
    usage_save(T, U)
  end
  redis.call('ZREM', T .. ':o', id)
  local first = redis.call('ZRANGE', T .. ':w', 0, 0, 'WITHSCORES')
  if first[2] then h.position = math.min(h.position, tonumber(first[2]) - 1) end
  h.state, h.settled = QUEUED, fence
  flag_clear(h, F_REAPED)
  header_save(T, id, h, us)
  wait_add(T, id, h.position)
  return {OK, ACCEPTED}
end

-- end_unleased id outcome terminal keep
local function end_unleased(K, A)
  local T, id, outcome, keep = K[1], A[1], num(A[2]), num(A[4])
  local h = header_of(T, id)
  if not h then return {NOTFOUND} end
  if h.state == ENDED then return {OK, ALREADY} end
  if h.state ~= QUEUED and not flag(h, F_REAPED) then return {OK, STALE} end
  wait_remove(T, id)
  if flag(h, F_REAPED) then h.settled = h.fence end
  end_unit(T, id, h, now_us(), outcome, A[3], keep)
  return {OK, ACCEPTED}
end

-- ---- looking ---------------------------------------------------------------------------------

-- Append id, header, expiry, spec, terminal, when and how it began to run.
local function row(out, T, id, with)
  local v = redis.call('HMGET', T .. ':u:' .. id, 'h', with % 2 >= 1 and 's' or '-', with >= 2 and 't' or '-', 'b')
  if not v[1] then return nil end
  check(v[1])
  local h = header_of(T, id)
  local x = h.lease ~= '' and redis.call('ZSCORE', T .. ':x', h.lease)
  out[#out + 1] = id
  out[#out + 1] = v[1]
  out[#out + 1] = x and tonumber(x) or 0
  out[#out + 1] = v[2] or ''
  out[#out + 1] = v[3] or ''
  local _, began = 0, 0
  if v[4] then _, began = struct.unpack('<Bd', check(v[4])) end
  out[#out + 1] = began
  out[#out + 1] = v[4] and string.sub(v[4], 10) or ''
  return h
end

local function get(K, A)
  local out = {OK, ''}
  if not row(out, K[1], A[1], num(A[2])) then return {NOTFOUND} end
  return out
end

-- cancel id unmade; unmade = 1: and the call that asked for it fails
local function cancel(K, A)
  local T, out = K[1], {OK, ''}
  local h = header_of(T, A[1])
  if not h then return {NOTFOUND} end
  local was = h.flags
  if h.state ~= ENDED then flag_set(h, F_CANCEL) end
  if A[2] == '1' then flag_set(h, F_UNMADE) end
  if h.flags ~= was then header_save(T, A[1], h, now_us()) end
  row(out, T, A[1], 0)
  return out
end

-- reap n -> units that were reaped and still wait for a decision
local function reap(K, A)
  local T, n = K[1], num(A[1])
  local L = limits_of(T)
  if not L then return {NOTFOUND} end
  local us = now_us()
  local U = usage_of(T, L, math.floor(us / 1000))
  if reap_expired(T, U, us) then usage_save(T, U) end
  local out = {OK, ''}
  for _, id in ipairs(redis.call('ZRANGE', T .. ':o', 0, n - 1)) do
    if not row(out, T, id, 0) then redis.call('ZREM', T .. ':o', id) end
  end
  return out
end

-- list prefix token states n with
local function list(K, A)
  local T, prefix, token, states, n, with = K[1], A[1], A[2], num(A[3]), num(A[4]), num(A[5])
  local from = token ~= '' and '(' .. token or '[' .. prefix .. '\255'
  local ids = redis.call('ZREVRANGEBYLEX', T .. ':i', from, '[' .. prefix, 'LIMIT', 0,
                         states == 0 and n + 1 or SCAN_MAX)
  local out, count, last = {OK, ''}, 0, nil
  for i, id in ipairs(ids) do
    if count == n then
      out[2] = last
      return out
    end
    local h = header_of(T, id)
    if h and (states == 0 or math.floor(states / 2 ^ h.state) % 2 == 1) then
      row(out, T, id, with)
      count = count + 1
    end
    last = id
  end
  if states ~= 0 and #ids == SCAN_MAX then out[2] = last end
  return out
end

-- live after n
local function live(K, A)
  local T, n = K[1], num(A[2])
  local ids = redis.call('ZRANGEBYLEX', T .. ':n', A[1] ~= '' and '(' .. A[1] or '-', '+', 'LIMIT', 0, n)
  local out = {OK, #ids == n and ids[n] or ''}
  for _, id in ipairs(ids) do row(out, T, id, 1) end
  return out
end

-- unlogged after n
local function unlogged(K, A)
  local T, n = K[1], num(A[2])
  local ids = redis.call('ZRANGEBYLEX', T .. ':a', A[1] ~= '' and '(' .. A[1] or '-', '+', 'LIMIT', 0, n)
  local out = {OK, #ids == n and ids[n] or ''}
  for _, id in ipairs(ids) do
    if not row(out, T, id, 2) then redis.call('ZREM', T .. ':a', id) end
  end
  return out
end

-- logged id ...
local function logged(K, A)
  redis.call('ZREM', K[1] .. ':a', unpack(A))
  return {OK}
end

local function usage(K)
  local T = K[1]
  local L = limits_of(T)
  if not L then return {NOTFOUND} end
  local U = usage_of(T, L, math.floor(now_us() / 1000))
  local out = {OK}
  for i = 1, 6 do out[#out + 1] = L.dim[i] end
  out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = L.period, L.rate, L.burst, L.queue
  for i = 1, 6 do out[#out + 1] = U.held[i] end
  out[#out + 1], out[#out + 2], out[#out + 3] = U.cpu, U.egress, (U.period + 1) * L.period
  for _, k in ipairs({':w', ':x', ':o', ':n'}) do out[#out + 1] = redis.call('ZCARD', T .. k) end
  out[#out + 1] = U.reaped
  return out
end

-- Does a lease hold what a unit in this state holds?
local function holds_right(h, rec)
  local rest = h.state == PAUSED
  for i = 1, 6 do
    local want = (rest and i <= 3) and 0 or h.need[i]
    if rec.need[i] ~= want and not (rest and i == 6 and rec.need[i] > want) then return false end
  end
  return rest or h.state == STARTING or h.state == RUNNING
end

-- Recount everything of a tenant -> drift of 6 dimensions, leases, units, wrong
local function recount(K)
  local T = K[1]
  local L = limits_of(T)
  if not L then return {NOTFOUND} end
  local U = usage_of(T, L, math.floor(now_us() / 1000))
  local held, wrong = U.held, 0
  local ids = redis.call('HKEYS', T .. ':l')
  for _, lease in ipairs(ids) do
    local rec = lease_of(T, lease)
    for i = 1, 6 do held[i] = held[i] - rec.need[i] end
    local h = header_of(T, rec.unit)
    if not h or h.lease ~= lease or h.fence ~= rec.fence or flag(h, F_REAPED) or
       not holds_right(h, rec) then wrong = wrong + 1 end
  end
  local waiting = redis.call('ZRANGE', T .. ':w', 0, -1)
  for _, id in ipairs(waiting) do
    local h = header_of(T, id)
    if not h or h.state ~= QUEUED or flag(h, F_REAPED) then wrong = wrong + 1 end
  end
  local reaped = redis.call('ZRANGE', T .. ':o', 0, -1)
  for _, id in ipairs(reaped) do
    local h = header_of(T, id)
    if not h or not flag(h, F_REAPED) or redis.call('HEXISTS', T .. ':l', h.lease) == 1 then wrong = wrong + 1 end
  end
  return {OK, held[1], held[2], held[3], held[4], held[5], held[6],
          #ids - redis.call('ZCARD', T .. ':x'),
          redis.call('ZCARD', T .. ':n') - #waiting - #ids - #reaped, wrong}
end

-- ---- tenants ---------------------------------------------------------------------------------

-- tenant_put name limit*10 blob
local function tenant_put(K, A)
  local T, l = K[1], {}
  for i = 1, 10 do l[i] = num(A[1 + i]) end
  if l[7] < 1 then return {INVALID} end
  local ms = math.floor(now_us() / 1000)
  local created = redis.call('HSETNX', T .. ':q', 'C', string.format('%.0f', ms))
  redis.call('HSET', T .. ':q', 'B', A[12], 'L', struct.pack(FL, REC, unpack(l)))
  redis.call('ZADD', 'cloche:tenants', 0, A[1])
  return {OK, created}
end

local function tenant_row(out, name)
  local T = '{' .. name .. '}'
  local L = limits_of(T)
  if not L then return false end
  local v = redis.call('HMGET', T .. ':q', 'B', 'C')
  out[#out + 1] = name
  for i = 1, 6 do out[#out + 1] = L.dim[i] end
  out[#out + 1], out[#out + 2], out[#out + 3], out[#out + 4] = L.period, L.rate, L.burst, L.queue
  out[#out + 1] = v[1] or ''
  out[#out + 1] = tonumber(v[2] or 0)
  return true
end

local function tenant_get(_, A)
  local out = {OK, ''}
  if not tenant_row(out, A[1]) then return {NOTFOUND} end
  return out
end

-- The ids of a lexical set after `after`, at most n, with the token of the next page.
local function page(key, after, n)
  local ids = redis.call('ZRANGEBYLEX', key, after ~= '' and '(' .. after or '-', '+', 'LIMIT', 0, n)
  return ids, #ids == n and ids[n] or ''
end

local function tenant_list(_, A)
  local ids, next_ = page('cloche:tenants', A[1], num(A[2]))
  local out = {OK, next_}
  for _, name in ipairs(ids) do tenant_row(out, name) end
  return out
end

local function tenant_delete(K, A)
  local T = K[1]
  if redis.call('EXISTS', T .. ':q') == 0 then return {NOTFOUND} end
  if redis.call('ZCARD', T .. ':n') > 0 then return {STATE, 0} end
  for _, id in ipairs(redis.call('ZRANGE', T .. ':i', 0, -1)) do redis.call('DEL', T .. ':u:' .. id) end
  for _, id in ipairs(redis.call('ZRANGE', 'cloche:keys:t:' .. A[1], 0, -1)) do
    redis.call('HDEL', 'cloche:keys', id)
    redis.call('HDEL', 'cloche:keys:used', id)
    redis.call('HDEL', 'cloche:keys:revoked', id)
  end
  redis.call('DEL', 'cloche:keys:t:' .. A[1])
  redis.call('ZREM', 'cloche:tenants', A[1])
  redis.call('DEL', T .. ':q', T .. ':l', T .. ':x', T .. ':w', T .. ':n', T .. ':o', T .. ':i', T .. ':t',
             T .. ':a')
  return {OK}
end

-- ---- keys ------------------------------------------------------------------------------------

-- key_put tenant id record
local function key_put(_, A)
  check(A[3])
  if redis.call('EXISTS', '{' .. A[1] .. '}:q') == 0 then return {NOTFOUND} end
  local old = redis.call('HGET', 'cloche:keys', A[2])
  if old then return {string.sub(old, 1, -9) == A[3] and OK or EXISTS} end
  redis.call('HSET', 'cloche:keys', A[2], A[3] .. struct.pack('<d', math.floor(now_us() / 1000)))
  redis.call('ZADD', 'cloche:keys:t:' .. A[1], 0, A[2])
  return {OK}
end

local function key_row(out, id)
  local rec = redis.call('HGET', 'cloche:keys', id)
  if not rec then return false end
  check(rec)
  out[#out + 1] = id
  out[#out + 1] = string.sub(rec, 1, -9)
  out[#out + 1] = (struct.unpack('<d', string.sub(rec, -8)))
  out[#out + 1] = tonumber(redis.call('HGET', 'cloche:keys:used', id) or 0)
  out[#out + 1] = redis.call('HEXISTS', 'cloche:keys:revoked', id)
  return true
end

local function key_get(_, A)
  local out = {OK, ''}
  if not key_row(out, A[1]) then return {NOTFOUND} end
  return out
end

local function key_list(_, A)
  local ids, next_ = page('cloche:keys:t:' .. A[1], A[2], num(A[3]))
  local out = {OK, next_}
  for _, id in ipairs(ids) do key_row(out, id) end
  return out
end

-- key_revoke tenant|'' id
local function key_revoke(_, A)
  if redis.call('HEXISTS', 'cloche:keys', A[2]) == 0 then return {NOTFOUND} end
  if A[1] ~= '' and not redis.call('ZSCORE', 'cloche:keys:t:' .. A[1], A[2]) then return {NOTFOUND} end
  redis.call('HSETNX', 'cloche:keys:revoked', A[2], string.format('%.0f', math.floor(now_us() / 1000)))
  return {OK}
end

local function key_touch(_, A)
  local ms = string.format('%.0f', math.floor(now_us() / 1000))
  for _, id in ipairs(A) do
    if redis.call('HEXISTS', 'cloche:keys', id) == 1 then redis.call('HSET', 'cloche:keys:used', id, ms) end
  end
  return {OK}
end

-- ---- workers, enrolment, audit head ----------------------------------------------------------

-- worker_put id keep blob
local function worker_put(_, A)
  local blob = A[3]
  local old = redis.call('HGET', 'cloche:workers', A[1])
  if num(A[2]) == 1 then
    if not old then return {NOTFOUND} end
    blob = string.sub(check(old), 10)
  end
  redis.call('HSET', 'cloche:workers', A[1], struct.pack('<Bd', REC, math.floor(now_us() / 1000)) .. blob)
  redis.call('ZADD', 'cloche:workers:i', 0, A[1])
  return {OK}
end

local function worker_row(out, id)
  local rec = redis.call('HGET', 'cloche:workers', id)
  if not rec then return false end
  local _, seen = struct.unpack('<Bd', check(rec))
  out[#out + 1] = id
  out[#out + 1] = seen
  out[#out + 1] = math.floor(now_us() / 1000)
  out[#out + 1] = string.sub(rec, 10)
  return true
end

local function worker_get(_, A)
  local out = {OK, ''}
  if not worker_row(out, A[1]) then return {NOTFOUND} end
  return out
end

local function worker_list(_, A)
  local ids, next_ = page('cloche:workers:i', A[1], num(A[2]))
  local out = {OK, next_}
  for _, id in ipairs(ids) do worker_row(out, id) end
  return out
end

local function worker_delete(_, A)
  redis.call('HDEL', 'cloche:workers', A[1])
  redis.call('ZREM', 'cloche:workers:i', A[1])
  return {OK}
end

local function enroll_put(_, A)
  local ttl = num(A[3])
  local key = 'cloche:enroll:' .. A[1]
  local old = redis.call('HGET', key, 'b')
  if old then return {old == A[2] and OK or EXISTS} end
  redis.call('HSET', key, 'b', A[2])
  redis.call('PEXPIRE', key, ttl)
  return {OK}
end

-- enroll_take hash claim
local function enroll_take(_, A)
  local key = 'cloche:enroll:' .. A[1]
  local v = redis.call('HMGET', key, 'b', 'c')
  if not v[1] or (v[2] and v[2] ~= A[2]) then return {UNAUTH} end
  if not v[2] then redis.call('HSET', key, 'c', A[2]) end
  return {OK, v[1]}
end

local function head_set(_, A)
  local seq = num(A[2])
  local old = redis.call('HGET', 'cloche:head:' .. A[1], 'seq')
  if old and tonumber(old) > seq then return {OK} end
  redis.call('HSET', 'cloche:head:' .. A[1], 'seq', A[2], 'hash', A[3])
  return {OK}
end

local function head_get(_, A)
  local v = redis.call('HMGET', 'cloche:head:' .. A[1], 'seq', 'hash')
  if not v[1] then return {NOTFOUND} end
  return {OK, tonumber(v[1]), v[2]}
end

-- ---- who leads -------------------------------------------------------------------------------

local function group_and_epoch(a)
  local group, epoch = string.match(a or '', '^(%S+) (%d+)$')
  if not group then error({err = 'CLINVALID bad term'}) end
  return group, num(epoch)
end

local function leader_of(group)
  local p = redis.call('GET', 'cloche:lead:' .. group)
  if not p then return nil end
  local _, epoch, till, since, id, proof = struct.unpack(FE, check(p))
  return {epoch = epoch, till = till, since = since, id = id, proof = proof}
end

local function leader_save(group, L)
  redis.call('SET', 'cloche:lead:' .. group, struct.pack(FE, REC, L.epoch, L.till, L.since, L.id, L.proof))
end

local function scheduler_note(group, id, blob, ms)
  local key = 'cloche:schedulers:' .. group
  local old = redis.call('HGET', key, id)
  if old and select(2, struct.unpack('<Bd', check(old))) + NOTE_MS > ms then return end
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local _, seen = struct.unpack('<Bd', check(all[i + 1]))
    if seen + SCHEDULER_MS < ms then redis.call('HDEL', key, all[i]) end
  end
  redis.call('HSET', key, id, struct.pack('<Bd', REC, ms) .. blob)
end

-- How many besides this one have asked lately.
local function count_others(group, id, ms)
  local all, n = redis.call('HGETALL', 'cloche:schedulers:' .. group), 0
  for i = 1, #all, 2 do
    local _, seen = struct.unpack('<Bd', check(all[i + 1]))
    if all[i] ~= id and seen + OTHERS_MS > ms then n = n + 1 end
  end
  return n
end

-- lead id dead-epoch ttl_ms proof blob: to begin a term, or to go on with it; dead-epoch: the term
-- whose leader is known to be dead.  Nobody else may begin one before `till`, but who led and asks
-- late goes on if nobody has.  When the books were lost the next term is told from the caller's.
-- Who led and does not any more never stands by: it ends.
local function lead(_, A, group, epoch)
  local ms = math.floor(now_us() / 1000)
  local id, dead, ttl, proof = A[1], num(A[2]), num(A[3]), A[4]
  local L = leader_of(group)
  if L and L.id ~= id and epoch > 0 then return {OK, 0, L.epoch, L.id, L.since, L.proof, 0} end
  scheduler_note(group, id, A[5], ms)
  if not (L and L.id == id) then
    if L and L.till > ms and L.epoch ~= dead then
      return {OK, 0, L.epoch, L.id, L.since, L.proof, count_others(group, id, ms)}
    end
    if L then redis.call('HDEL', 'cloche:schedulers:' .. group, L.id) end
    L = {epoch = math.max(L and L.epoch or 0, epoch) + 1, since = ms, id = id, proof = proof}
  end
  L.till = ms + ttl
  leader_save(group, L)
  return {OK, 1, L.epoch, L.id, L.since, L.proof, count_others(group, id, ms)}
end

local function resign(_, A, group)
  local L = leader_of(group)
  redis.call('HDEL', 'cloche:schedulers:' .. group, A[1])
  if L and L.id == A[1] then
    L.till = 0
    leader_save(group, L)
  end
  return {OK}
end

local function scheduler_list(_, _, group)
  local all, ms, out = redis.call('HGETALL', 'cloche:schedulers:' .. group), math.floor(now_us() / 1000), {OK, ''}
  local L = leader_of(group)
  for i = 1, #all, 2 do
    local _, seen = struct.unpack('<Bd', check(all[i + 1]))
    local leads = L and L.id == all[i] and 1 or 0
    out[#out + 1] = all[i]
    out[#out + 1] = seen
    out[#out + 1] = ms
    out[#out + 1] = leads
    out[#out + 1] = leads == 1 and L.since or 0
    out[#out + 1] = string.sub(all[i + 1], 10)
  end
  return out
end

-- The term is checked, and not handed on.
local function fenced(f)
  return function(K, A)
    local group, epoch = group_and_epoch(A[#A])
    local L = leader_of(group)
    if epoch ~= (L and L.epoch or 0) then return {DEPOSED} end
    A[#A] = nil
    return f(K, A)
  end
end

-- It is what decides.
local function unfenced(f)
  return function(K, A)
    local group, epoch = group_and_epoch(A[#A])
    A[#A] = nil
    return f(K, A, group, epoch)
  end
end

local function version() return {OK, VERSION, DIGEST} end

-- While a library loads there is neither pairs() nor ipairs().
local functions = {
  {'admit', admit}, {'reserve', reserve}, {'started', started}, {'pause', pause},
  {'resume', resume}, {'move', move}, {'renew', renew}, {'finish', finish},
  {'requeue', requeue}, {'end_unleased', end_unleased}, {'get', get}, {'cancel', cancel},
  {'reap', reap}, {'list', list}, {'live', live}, {'unlogged', unlogged},
  {'logged', logged}, {'usage', usage}, {'recount', recount},
  {'tenant_put', tenant_put}, {'tenant_get', tenant_get}, {'tenant_list', tenant_list},
  {'tenant_delete', tenant_delete}, {'key_put', key_put}, {'key_get', key_get}, {'key_list', key_list},
  {'key_revoke', key_revoke}, {'key_touch', key_touch}, {'worker_put', worker_put},
  {'worker_get', worker_get}, {'worker_list', worker_list}, {'worker_delete', worker_delete},
  {'enroll_put', enroll_put}, {'enroll_take', enroll_take}, {'head_set', head_set},
  {'head_get', head_get},
}
for i = 1, #functions do
  redis.register_function('cloche_' .. functions[i][1], fenced(functions[i][2]))
end
redis.register_function('cloche_lead', unfenced(lead))
redis.register_function('cloche_resign', unfenced(resign))
redis.register_function('cloche_scheduler_list', unfenced(scheduler_list))
redis.register_function('cloche_version', version)
