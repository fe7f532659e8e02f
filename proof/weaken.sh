#!/usr/bin/env bash
# Weakens one lock or memory ordering at a time in a copy of the tree, and expects the model of that code to fail. Prints
# a table. It is an error if a mutation no longer matches the code, does not compile, or is not detected.
#
#   proof/weaken.sh            all mutations
#   proof/weaken.sh breaker    mutations whose name or model contains `breaker`
#   proof/weaken.sh --check    only checks that each mutation matches the code and that its model exists; compiles nothing
set -uo pipefail
cd "$(dirname "$0")/.."
only=${1:-} check=false
[[ $only == --check ]] && check=true only=
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$PWD/proof/target}
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/proof" "$copy/tests"
cp -r src "$copy/src"
cp -r tests/support "$copy/tests/support"
cp Cargo.toml README.md "$copy/"
cp -r proof/Cargo.toml proof/Cargo.lock proof/build.rs "$copy/proof/"
faults=0

# Arguments: the name, the files, the perl substitution, and the model.
weaken() {
    local name=$1 files=$2 change=$3 model=$4 log=$copy/log verdict file changed=true
    [[ "$name $model" == *"$only"* ]] || return 0
    for file in $files; do
        perl -0pi -e "$change" "$copy/src/$file"
        cmp -s "src/$file" "$copy/src/$file" && changed=false
    done
    if ! $changed; then
        verdict='**the pattern does not match the code**'
    elif $check; then
        verdict='**no such model**'
        grep -rq "fn ${model##*::}()" src && verdict=
    elif timeout "${TIMEOUT:-300}" cargo test --quiet --manifest-path "$copy/proof/Cargo.toml" --lib "$model" \
        >"$log" 2>&1 </dev/null; then
        verdict='**not detected**'
        grep -q '^running 0 tests' "$log" && verdict='**no such model**'
    elif grep -q 'could not compile' "$log"; then
        verdict='**does not compile**'
        grep -m3 -A6 '^error' "$log" >&2
    elif grep -q '^test result: FAILED' "$log" || grep -q 'panicked at' "$log"; then
        verdict=$(grep -A1 -m1 'panicked at' "$log" | tail -1 | cut -c 1-90 | tr '|' '/')
    else
        verdict='**failed without a test result**'
        tail -3 "$log" >&2
    fi
    [[ $verdict == '**'* ]] && faults=$((faults + 1))
    [[ -z $verdict ]] || echo "| $name | \`$files\` | \`${model##*::}\` | $verdict |"
    for file in $files; do
        cp "src/$file" "$copy/src/$file"
    done
}

$check || printf '%s\n' '| mutation | file | detected by | failure |' '| --- | --- | --- | --- |'

# The clock.
weaken 'clock: the comparison is claimed by a load and a store' clock/mod.rs \
    's/self\.checked\.compare_exchange\(checked, ran, .*?\)\.is_err\(\)/self.checked.load(Ordering::Relaxed) != checked || { self.checked.store(ran, Ordering::Relaxed); false }/' \
    clock::models::only_one_of_two_threads_corrects_the_drift
weaken 'clock: the drift is updated by a load and a store' clock/mod.rs \
    's/let _ = self\.drift\.fetch_update\(.*?\);/if let Some(drift) = corrected(self.drift.load(Ordering::Relaxed)) { self.drift.store(drift, Ordering::Relaxed); }/' \
    clock::models::a_delayed_thread_does_not_undo_a_later_jump
weaken 'manual clock: the lock is released between reading the time and registering the sleep' clock/manual.rs \
    's/(return Poll::Ready\(\(\)\);\s*\}\s*)state\.sleepers\.insert/$1drop(state);\n        self.clock.state().sleepers.insert/' \
    clock::models::a_sleeper_is_woken_no_matter_when_the_clock_moves

# The breaker.
weaken 'breaker: the state is read under one lock, and the probe is taken under another' backend/redis/breaker.rs \
    's/(fn permit\(&self, now: Instant\) -> Permit \{)/$1\n        if self.state().as_ref().is_some_and(|open| !open.probing && now >= open.until) {\n            if let Some(open) = &mut *self.state() {\n                open.probing = true;\n            }\n            return Permit::Probe;\n        }/' \
    redis::models::breaker::only_one_of_several_concurrent_callers_starts_a_probe
weaken 'breaker: a late failure opens it again' backend/redis/breaker.rs \
    's/if state\.is_none\(\) \{/if true {/' \
    redis::models::breaker::at_most_one_probe_runs_and_another_can_follow

# The batcher.
weaken 'batcher: the lock is released between finding the queue empty and ending the worker' backend/redis/batcher.rs \
    's/if operations\.is_empty\(\) \{/if operations.is_empty() {\n            drop(queues);\n            let mut queues = self.queues();\n            let by_slot = &mut queues.by_slot;\n            let queue = by_slot.get_mut(&slot)?;/' \
    redis::models::batcher::all_operations_complete_and_the_queue_is_empty_afterwards
weaken 'batcher: operations do not wait for a reset of their row' backend/redis/batcher.rs \
    's/ \|\| queue\.is_locked\(next\)//' \
    redis::models::batcher::a_decision_does_not_overtake_a_reset_of_its_row

# The waiting queue.
weaken 'queue: the last reservation is found under one lock and taken under another' limiter/queue/mod.rs \
    's/(let \(_waiter, decision, wakers\) = self\.remove\(ticket, )Queue::leave\)\?;/let last = self.0.with(&ticket.queue, |queue| queue.reserved.at(queue.reserved.len() - 1))??;\n        $1|queue, waiter| queue.leave(waiter, last))?;/; s/fn leave\(&mut self, waiter: EntryId\)/fn leave(&mut self, waiter: EntryId, last: EntryId)/; s/let last = self\.reserved\.at\(self\.reserved\.len\(\)\.checked_sub\(1\)\?\)\?;//' \
    limiter::models::cells::the_last_waiter_is_woken_for_the_first_reservation_and_no_reservation_is_lost
weaken 'queue: the waker of the last poll is not stored' limiter/queue/mod.rs \
    's/std::mem::replace\(&mut waiter\.waker, waker\.clone\(\)\)/waker.clone()/' \
    limiter::models::cells::the_last_waiter_is_woken_for_the_first_reservation_and_no_reservation_is_lost
weaken 'queue: a polled caller still counts as woken' limiter/queue/mod.rs \
    's/std::mem::take\(&mut waiter\.moved\)/waiter.moved/' \
    limiter::models::cells::the_last_waiter_is_woken_for_the_first_reservation_and_no_reservation_is_lost
weaken 'queue: the reservation is read under one lock and released under another' limiter/queue/mod.rs \
    's/let \(_waiter, decision\) = self\.remove\(ticket, Queue::complete\)\?;/let decision = self.0.with(&ticket.queue, |queue| queue.reserved.at(queue.waiters.rank(ticket.waiter)).map(|reserved| queue.reserved.get(reserved).clone()))??;\n        self.remove(ticket, Queue::complete)?;/' \
    limiter::models::cells::no_reservation_is_both_used_and_given_back
weaken 'queue: removed without a second check that it is empty' limiter/queue/mod.rs \
    's/let removed = self\.0\.with\(&ticket\.queue, \|queue\| exit\(queue, ticket\.waiter\)\)\?;\s*self\.0\.remove_if\(&ticket\.queue, \|queue\| queue\.waiters\.len\(\) == 0\);/let (removed, is_empty) = self.0.with(&ticket.queue, |queue| (exit(queue, ticket.waiter), queue.waiters.len() == 0))?;\n        self.0.remove_if(&ticket.queue, |_| is_empty);/' \
    limiter::models::cells::a_queue_is_not_removed_while_a_caller_joins
weaken 'slots: counted by a load, then taken by a store' limiter/waiting.rs \
    's/self\.inner\.waiting\.fetch_update\(.*?\)\.ok\(\)\?;/let taken = one_more(self.inner.waiting.load(Ordering::Relaxed))?;\n        self.inner.waiting.store(taken, Ordering::Relaxed);/' \
    limiter::models::whole::concurrent_calls_take_as_many_slots_as_max_waiting_allows
weaken 'slots: taken, then released if none was free' limiter/waiting.rs \
    's/self\.inner\.waiting\.fetch_update\(.*?\)\.ok\(\)\?;/let taken = self.inner.waiting.fetch_add(1, Ordering::Relaxed);\n        if one_more(taken).is_none() {\n            self.inner.waiting.fetch_sub(1, Ordering::Relaxed);\n            return None;\n        }/' \
    limiter::models::whole::a_released_slot_goes_to_exactly_one_of_two_calls

# The block cache.
weaken 'block cache: a denial from before an invalidation is cached' limiter/block_cache.rs \
    's/bucket\.forgotten == \*forgotten && //; s/for \(\(take, step\), forgotten\)/for ((take, step), _forgotten)/' \
    limiter::models::cells::a_denial_read_before_a_refund_is_not_cached_after_the_refund
weaken 'block cache: the decision that arrives last is kept' limiter/block_cache.rs \
    's/ && known\.seen > row\.seen && / \&\& false \&\& /' \
    limiter::models::cells::the_block_cache_keeps_the_later_of_two_answers
weaken 'block cache: invalidated before the reset is sent to the backend' limiter/control.rs \
    's/(let done = self\.backend\.reset\(&shards\);)(.*?)(self\.forget_denials\(.*?\);)/$2\n        $3\n        $1/s' \
    limiter::models::whole::denials_from_before_a_reset_are_not_cached_after_the_reset
weaken 'block cache: invalidated before the settlement is sent to the backend' limiter/receipt.rs \
    's/(let done = inner\.backend\.settle\(&charges\);)(.*?)(inner\.forget_denials\(.*?\);)/$3\n        $1/s' \
    limiter::models::whole::denials_from_before_a_cancellation_are_not_cached_after_the_cancellation
weaken 'block cache: the permit is taken after the backend call' limiter/decide.rs \
    's/call\.permit = Some\(cache\.permit\(&takes, now\)\);//; s/(match answer\.try_ready\(\))/if let Some(cache) = &self.inner.block_cache {\n            call.permit = Some(cache.permit(takes, self.inner.time.now()));\n        }\n        $1/' \
    limiter::models::whole::denials_from_before_a_reset_are_not_cached_after_the_reset

# Changed quotas and deny lists.
weaken 'overrides: the count is updated after the lock is released' limiter/overrides.rs \
    's/self\.count\.store\(count\(&policies\), Ordering::Release\);/let count = count(\&policies);\n        drop(policies);\n        self.count.store(count, Ordering::Release);/' \
    limiter::models::cells::concurrent_changes_do_not_hide_a_changed_quota
weaken 'overrides: the count is updated after the lock is released for several quotas' limiter/overrides.rs \
    's/self\.count\.store\(count, Ordering::Release\);/drop(guard);\n        self.count.store(count, Ordering::Release);/' \
    limiter::models::cells::quotas_are_replaced_in_one_step
weaken 'deny list: writers are not serialized' limiter/deny.rs \
    's/let _one_at_a_time = self/let _ = self/' \
    limiter::models::cells::concurrent_inserts_lose_no_rule

# The guard.
weaken 'offenders: blocks are counted by a load and a store' limiter/guard/offenders.rs \
    's/blocks\.fetch_add\(1, Ordering::Relaxed\);/blocks.store(blocks.load(Ordering::Relaxed) + 1, Ordering::Relaxed);/' \
    guard::models::the_block_count_is_positive_while_a_block_is_active
weaken 'offenders: a bucket is copied, changed and written back' limiter/guard/offenders.rs \
    's/(fn denied\(&self, id: Digest, now: Micros, rules: &AutoBlock\) -> Option<\(Duration, u32\)> \{)\s*let mut bucket = self\.bucket\(id\);\s*let entry = self\.entry\(&mut bucket, id, now\);/$1\n        let mut copy = self.bucket(id).clone();\n        let answer = self.denied_in(&mut copy, id, now, rules);\n        *self.bucket(id) = copy;\n        answer\n    }\n\n    fn denied_in(&self, bucket: &mut [Offender; WAYS], id: Digest, now: Micros, rules: &AutoBlock) -> Option<(Duration, u32)> {\n        let entry = self.entry(bucket, id, now);/; s/#\[derive\(Default\)\]\nstruct Offender/#[derive(Clone, Default)]\nstruct Offender/' \
    guard::models::concurrent_denials_at_the_threshold_cause_one_block
weaken 'manual blocks: looked up before the lock is taken' limiter/guard/manual_blocks.rs \
    's/let mut ends = self\.ends\(\);\s*if let Some\(before\) = self\.until\.with\(&id, \|\(until, _\)\| \*until\) \{/let before = self.until.with(\&id, |(until, _)| *until);\n        let mut ends = self.ends();\n        if let Some(before) = before {/' \
    guard::models::two_manual_blocks_on_the_same_caller_count_once
weaken 'manual blocks: the flag is not set' limiter/guard/manual_blocks.rs \
    's/self\.any\.store\(true, Ordering::Release\);//' \
    limiter::models::whole::no_call_is_allowed_once_a_block_takes_effect

# Whole limiters.
weaken 'decisions: blocks are not checked' limiter/decide.rs \
    's/let is_guarded = guarded && guard\.is_needed\(\);/let is_guarded = false;/' \
    limiter::models::whole::no_call_is_allowed_once_a_block_takes_effect
weaken 'decisions: changed quotas are not checked' limiter/decide.rs \
    's/self\.overridden\(charges\), /SmallVec::<[Overridden; 1]>::new(), /' \
    limiter::models::whole::no_call_uses_the_old_quota_once_a_change_takes_effect
weaken 'settlement: the mark is set by a load and a store' limiter/receipt.rs \
    's/!self\.inner\.settled\[index\]\.swap\(true, Ordering::Relaxed\)/{ let first = !self.inner.settled[index].load(Ordering::Relaxed); self.inner.settled[index].store(true, Ordering::Relaxed); first }/' \
    limiter::models::whole::clones_of_a_receipt_settle_a_charge_only_once

# The table of rows.
relock='s/(fn decide_lines\(.*?\{\n)/$1        let incoming: Vec<usize> = self.shards.iter().map(|shard| shard.incoming).collect();\n        self.shards.clear();\n        let mut numbers: Vec<usize> = self.pinned.iter().map(|key| self.table.shard_of(*key)).collect();\n        numbers.sort_unstable();\n        numbers.dedup();\n        for (number, incoming) in numbers.into_iter().zip(incoming) {\n            let mut shard = self.table.lock(number);\n            shard.incoming = incoming;\n            self.shards.push(shard);\n        }\n/s'
weaken 'row update: the shard is unlocked between reading and writing a row' backend/memory/call.rs "$relock" \
    memory::models::one_row_admits_exactly_its_limit
weaken 'calls of several rows: the shards are unlocked between reading and writing' backend/memory/call.rs "$relock" \
    memory::models::calls_on_two_rows_in_opposite_order_are_atomic_and_do_not_deadlock
weaken 'eviction: unlocked between finding a slot and using it, without a second check' backend/memory/call.rs \
    "$relock; s/if shard\.is_full\(\) && !shard\.ensure_slot/if false \&\& !shard.ensure_slot/" \
    memory::models::concurrent_newcomers_stay_within_the_cap_and_do_not_evict_denied_keys
weaken 'calls of several rows: the shards are locked in the order of the call' backend/memory/call.rs \
    's/numbers\.sort_unstable\(\);//' \
    memory::models::calls_on_two_rows_in_opposite_order_are_atomic_and_do_not_deadlock
weaken 'overflow rows: the shard is unlocked between reading and writing' backend/memory/call.rs "$relock" \
    memory::models::newcomers_to_full_shards_share_a_quota_and_do_not_deadlock
weaken 'settlement of a row: the shard is unlocked between reading and writing' backend/memory/mod.rs \
    's/(let mut row = call\.load\(.*?\);\n)/$1        drop(call);\n        let mut call = LockedCall::new(\&self.table, std::iter::once((\&settlement.row, *window)));\n/' \
    memory::models::three_concurrent_operations_are_linearizable

exit $((faults > 0))
