//! Models of parts of a limiter: the waiting queue, changed quotas, deny lists and the block cache.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::super::block_cache::BlockCache;
use super::super::deny::DenyList;
use super::super::overrides::{Override, Overrides, QuotaScope, Setting};
use super::super::queue::Queues;
use crate::algorithm::{Ask, MINUTE, Micros, Quota, State, step};
use crate::backend::{RowId, Take};
use crate::policy::{
    ChargedQuota, Decision, Decisions, DenyRule, Digest, Key, Part, Policy, PolicyName, Signals, Subject,
};
use crate::sync::Mutex;
use crate::sync::model::{every_order, orders_with_preemptions, thread};

const NOW: Micros = Micros::new(1_700_000_000_000_000);
const API: PolicyName = PolicyName::new("api");
const KEY: Digest = Digest::from_bits(7 << 64);

/// Creates a reservation that is due after `before` other reservations.
fn reservation(before: u64) -> Decisions {
    let quota = Quota::token_bucket(1, MINUTE).capacity(1).unlimited_reservations();
    let state = State { spent: before as f64, at: NOW, stamp: quota.stamp(), ..State::default() };
    let step = step(&quota, &state, NOW, Ask::cost(1).reserve());
    let of = ChargedQuota { policy: API, row_key: KEY, quota, cost: 1, window: 0, part: Part::WHOLE };
    Decision::new(of, step, true).into()
}

fn due(decision: &Decision) -> u64 {
    (decision.due().get() - NOW.get()) / 60_000_000
}

/// Two of three callers leave. The third caller is woken and gets the first reservation.
#[test]
fn the_last_waiter_is_woken_for_the_first_reservation_and_no_reservation_is_lost() {
    orders_with_preemptions(3, || {
        let queues = Arc::new(Queues::default());
        let waker = std::task::Waker::noop();
        let tickets = [1, 2].map(|before| queues.join(&reservation(before), waker).unwrap());
        let last = queues.join(&reservation(3), waker).unwrap();
        let leavers = tickets.map(|ticket| {
            let queues = Arc::clone(&queues);
            thread(move || due(&queues.leave(&ticket).unwrap()))
        });
        let mut mine = 3;
        // The model checker reports an error if the caller is never woken.
        loom::future::block_on(std::future::poll_fn(|context| {
            if let Some(moved) = queues.moved(&last, context.waker()) {
                mine = due(&moved);
            }
            if mine == 1 { Poll::Ready(()) } else { Poll::Pending }
        }));
        let mut left = leavers.map(|leaver| leaver.join().unwrap());
        left.sort_unstable();
        assert_eq!(left, [2, 3]);
        assert_eq!(due(&queues.complete(&last).unwrap()), 1);
    });
}

/// A caller uses its reservation while the caller ahead leaves the queue.
#[test]
fn no_reservation_is_both_used_and_given_back() {
    every_order(|| {
        let queues = Arc::new(Queues::default());
        let waker = std::task::Waker::noop();
        let [first, second] = [1, 2].map(|before| queues.join(&reservation(before), waker).unwrap());
        let leaver = {
            let queues = Arc::clone(&queues);
            thread(move || due(&queues.leave(&first).unwrap()))
        };
        let used = due(&queues.complete(&second).unwrap());
        let left = leaver.join().unwrap();
        assert_eq!(used + left, 3, "{used} was used, and {left} was given back");
        assert_ne!(used, left);
    });
}

#[test]
fn a_queue_is_not_removed_while_a_caller_joins() {
    every_order(|| {
        let queues = Arc::new(Queues::default());
        let waker = std::task::Waker::noop();
        let first = queues.join(&reservation(1), waker).unwrap();
        let completing = {
            let queues = Arc::clone(&queues);
            thread(move || due(&queues.complete(&first).unwrap()))
        };
        let second = queues.join(&reservation(2), waker).unwrap();
        assert_eq!(completing.join().unwrap(), 1);
        assert_eq!(queues.complete(&second).map(|decision| due(&decision)), Some(2));
    });
}

fn change(key: u128, quota: Option<Quota>) -> Override {
    let quotas = quota.map(|quota| Arc::new(quota.into()));
    Override { policy: API, setting: Setting::Quotas(QuotaScope::Key(Digest::from_bits(key)), quotas) }
}

/// Calls skip the lock while the number of changed quotas is 0.
#[test]
fn concurrent_changes_do_not_hide_a_changed_quota() {
    every_order(|| {
        let quota = Quota::token_bucket(2, MINUTE);
        let overrides = Arc::new(Overrides::default());
        overrides.set(change(1, Some(quota)), NOW);
        let reverting = {
            let overrides = Arc::clone(&overrides);
            thread(move || overrides.set(change(1, None), NOW))
        };
        let setting = {
            let overrides = Arc::clone(&overrides);
            thread(move || overrides.set(change(2, Some(quota)), NOW))
        };
        reverting.join().unwrap();
        setting.join().unwrap();
        let policy = Policy::new("api", Quota::token_bucket(1, MINUTE));
        let found = overrides.quotas(&policy, &Subject::anonymous(), Some(Digest::from_bits(2)));
        assert_eq!(found, Some(Arc::new(quota.into())));
        assert_eq!((overrides.len(), overrides.is_empty()), (1, false));
    });
}

/// A replacement of all quotas and a change by another process take effect one after the other, in either order.
#[test]
fn quotas_are_replaced_in_one_step() {
    every_order(|| {
        let quota = Quota::token_bucket(2, MINUTE);
        let overrides = Arc::new(Overrides::default());
        overrides.set(change(1, Some(quota)), NOW);
        let replacing = {
            let overrides = Arc::clone(&overrides);
            thread(move || overrides.replace([]))
        };
        let setting = {
            let overrides = Arc::clone(&overrides);
            thread(move || overrides.set(change(2, Some(quota)), NOW))
        };
        replacing.join().unwrap();
        setting.join().unwrap();
        let policy = Policy::new("api", Quota::token_bucket(1, MINUTE));
        let find = || {
            [1, 2].map(|key| overrides.quotas(&policy, &Subject::anonymous(), Some(Digest::from_bits(key))).is_some())
        };
        let found = find();
        assert!(!found[0]);
        assert_eq!((overrides.len(), overrides.is_empty()), (usize::from(found[1]), !found[1]));
        // Another change recomputes the count, revealing any quota that a wrong count had hidden.
        overrides.set(change(3, Some(quota)), NOW);
        assert_eq!(find(), found);
    });
}

#[test]
fn concurrent_inserts_lose_no_rule() {
    every_order(|| {
        let list = DenyList::new();
        list.insert(DenyRule::key(0));
        let writers = [1, 2].map(|key| {
            let list = list.clone();
            thread(move || list.insert(DenyRule::key(key)))
        });
        // A listed caller stays listed while the list is rebuilt.
        assert!(list.find(Some(&Key::from(0)), &Signals::new()).is_some());
        assert!(writers.map(|writer| writer.join().unwrap()).iter().all(|inserted| *inserted));
        assert_eq!(list.len(), 3);
    });
}

/// One caller caches a denial while another caller gives tokens back and clears the cached row.
#[test]
fn a_denial_read_before_a_refund_is_not_cached_after_the_refund() {
    every_order(|| {
        let quota = Quota::token_bucket(1, MINUTE).seeded(0);
        let full = State { spent: 1.0, at: NOW, stamp: quota.stamp(), ..State::default() };
        let (cache, row) = (Arc::new(BlockCache::new(4)), Arc::new(Mutex::new(full)));
        let asking = {
            let (cache, row) = (Arc::clone(&cache), Arc::clone(&row));
            thread(move || {
                let policy = API;
                let take = Take::new(RowId { policy: &policy, key: KEY }, &quota, Ask::cost(1));
                let permit = cache.permit(&[take], NOW);
                let seen = step(&take.quota, &row.lock().unwrap(), NOW, take.ask);
                cache.store(&[take], &seen.into(), false, &permit, NOW, |_| Duration::ZERO);
            })
        };
        let policy = API;
        *row.lock().unwrap() = State::default();
        cache.forget([RowId { policy: &policy, key: KEY }.digest()].into_iter());
        asking.join().unwrap();
        let take = Take::new(RowId { policy: &policy, key: KEY }, &quota, Ask::cost(1));
        assert!(cache.denies(&[take], NOW).is_none(), "the call was denied after a refund");
    });
}

#[test]
fn the_block_cache_keeps_the_later_of_two_answers() {
    every_order(|| {
        let quota = Quota::token_bucket(1, MINUTE).seeded(0);
        let cache = Arc::new(BlockCache::new(4));
        let reader = |seen: Micros, spent: f64| {
            let cache = Arc::clone(&cache);
            move || {
                let policy = API;
                let row = RowId { policy: &policy, key: KEY };
                let take = Take::new(row, &quota, Ask::cost(1));
                let permit = cache.permit(&[take], NOW);
                let state = State { spent, at: seen, stamp: take.quota.stamp(), ..State::default() };
                let answer = step(&take.quota, &state, seen, Ask::cost(9));
                cache.store(&[take], &answer.into(), true, &permit, NOW, |_| Duration::ZERO);
            }
        };
        let (early, late) = (thread(reader(NOW, 0.0)), thread(reader(NOW.plus(1), 1.0)));
        early.join().unwrap();
        late.join().unwrap();
        let policy = API;
        let take = Take::new(RowId { policy: &policy, key: KEY }, &quota, Ask::cost(1));
        assert!(cache.denies(&[take], NOW).is_some(), "an earlier row replaced a later one");
    });
}
