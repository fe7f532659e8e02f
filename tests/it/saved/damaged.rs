//! A damaged state is rejected with a reason, and changes nothing.

use proptest::prelude::*;
use tollgate::algorithm::Micros;
use tollgate::backend::Backend;
use tollgate::clock::ManualClock;
use tollgate::limiter::StateErrorKind;
use tollgate::protection::Signal;
use tollgate::{HOUR, Policy, Quota, RateLimiter};

use super::{backend, limiter, saved};
use crate::support::generators::cases;
use crate::support::now;

fn api() -> Policy {
    Policy::new("api", Quota::token_bucket(1_000, HOUR))
}

/// Creates a limiter with 20,000 rows. Its saved state has several parts.
fn full(clock: &ManualClock) -> RateLimiter {
    let limiter = limiter(clock);
    (0..20_000u64).for_each(|key| drop(now(limiter.try_limit(&api(), key))));
    now(Box::pin(limiter.set_quota(&api(), Quota::token_bucket(500, HOUR))));
    now(Box::pin(limiter.block(Signal::key("mallory"), HOUR)));
    now(limiter.pause(&api(), "slow", HOUR));
    limiter
}

/// A pseudorandom number generator that produces the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

#[test]
fn two_hundred_damaged_states_change_nothing() {
    let clock = ManualClock::new();
    let state = saved(&full(&clock));
    assert!(state.len() > 800_000);
    let after = limiter(&clock);
    now(after.limit(&api(), "ada"));
    let observed = |limiter: &RateLimiter| {
        let left = now(limiter.remaining(&api(), "ada"));
        (limiter.stats(), limiter.set_quotas(), limiter.blocks().len(), left)
    };
    let expected = observed(&after);
    let (mut random, mut messages) = (Random(7), std::collections::BTreeMap::<String, usize>::new());
    for number in 0..200 {
        let mut damaged = state.clone();
        let position = random.below(if number % 2 == 0 { 200 } else { state.len() });
        match number % 5 {
            0 | 1 => damaged[position] ^= 1 << random.below(8),
            2 => damaged.truncate(position),
            3 => damaged.extend_from_slice(&state[..1 + random.below(100)]),
            _ => {
                let end = (position + 1 + random.below(5_000)).min(state.len());
                let taken: Vec<u8> = damaged.drain(position..end).collect();
                if number % 10 == 9 {
                    let length = damaged.len();
                    let place = random.below(length);
                    damaged.splice(place..place, taken);
                }
            }
        }
        if damaged == state {
            continue;
        }
        let error = after.load(&damaged[..]).expect_err("a damaged state was loaded");
        assert_ne!(error.kind(), StateErrorKind::Io, "{error}");
        assert!(error.to_string().contains("the state"), "{error}");
        let text: String = error.to_string().chars().filter(|character| !character.is_ascii_digit()).collect();
        *messages.entry(text).or_default() += 1;
        assert_eq!(observed(&after), expected, "{error}");
    }
    println!("{messages:#?}");
    assert!(messages.len() >= 6, "{messages:#?}");
    assert!(after.load(&state[..]).is_ok(), "the undamaged state must be valid");
    assert_ne!(observed(&after), expected);
}

proptest! {
    #![proptest_config(cases(2_000))]

    /// Rows are authenticated before they are read. Even so, rows with random bytes must not cause a panic.
    #[test]
    fn random_rows_are_rejected_or_can_be_charged(
        changes in prop::collection::vec((0usize..10_000, any::<u8>()), 1..20),
        cut in 0usize..100,
        later in -1_000_000_000_000_i64..1_000_000_000_000,
    ) {
        let clock = ManualClock::new();
        let quotas = [Quota::token_bucket(5, HOUR), Quota::fixed_window(5, HOUR), Quota::sliding_window(5, HOUR)];
        let policies = quotas.map(|quota| Policy::new("api", quota));
        let rows = std::sync::Arc::new(backend(&clock));
        let before = RateLimiter::new(std::sync::Arc::clone(&rows));
        for key in 0..4u64 {
            policies.iter().for_each(|policy| drop(now(before.try_limit(policy, key))));
        }
        let mut bytes = rows.save_rows().expect("expected a memory backend").bytes;
        for (position, byte) in changes {
            let length = bytes.len();
            bytes[position % length] = byte;
        }
        bytes.truncate(bytes.len() - cut.saturating_sub(80));
        let begin = tollgate::clock::Clock::now(&clock).get();
        clock.set(Micros::new(begin.saturating_add_signed(later)));
        let rows = std::sync::Arc::new(backend(&clock));
        if rows.load_rows(&bytes).is_err() {
            prop_assert!(rows.is_empty());
        }
        let after = RateLimiter::new(std::sync::Arc::clone(&rows));
        for key in 0..4u64 {
            for policy in &policies {
                let spent = now(after.try_acquire(policy, key).cost(2));
                prop_assert!(spent.remaining() <= 5);
            }
        }
        prop_assert!(rows.save_rows().is_some());
    }
}

#[test]
fn parts_of_two_states_cannot_be_combined() {
    let clock = ManualClock::new();
    let one = full(&clock);
    let first = saved(&one);
    now(one.limit(&api(), "ada"));
    let second = saved(&one);
    // The last part of a state contains no data: its 21 bytes are a header and a hash that covers all earlier parts.
    let mut mixed = first[..first.len() - 21].to_vec();
    mixed.extend_from_slice(&second[second.len() - 21..]);
    let error = limiter(&clock).load(&mixed[..]).unwrap_err();
    assert!(error.to_string().contains("has been changed since it was saved"), "{error}");
}

#[test]
fn errors_say_what_was_expected_and_what_was_found() {
    let clock = ManualClock::new();
    let state = saved(&limiter(&clock));
    let with = |position: usize, byte: u8| {
        let mut changed = state.clone();
        changed[position] = byte;
        changed
    };
    let long = [&state[..], b"more"].concat();
    let without_end = &state[..state.len() - 21];
    let end = format!("the state is incomplete: it ends after {} bytes", without_end.len());
    let cases: [(&[u8], StateErrorKind, &str); 9] = [
        (without_end, StateErrorKind::Damaged, &end),
        (b"", StateErrorKind::Damaged, "expected the saved state of a limiter, found no bytes"),
        (b"{\"rows\": 1}", StateErrorKind::Damaged, "expected the saved state of a limiter, found other data"),
        (&state[..15], StateErrorKind::Damaged, "the state is incomplete: it ends after 15 bytes"),
        (&with(8, 3), StateErrorKind::Version, "expected version 1 of the format, found 3"),
        (&with(12, state[12] ^ 1), StateErrorKind::Secret, "the state was saved with a different secret"),
        (&with(24, 0xff), StateErrorKind::Damaged, "the part at byte 20 claims to be"),
        (&with(25, state[25] ^ 1), StateErrorKind::Damaged, "the part at byte 20 is incomplete, or has been changed"),
        (&long, StateErrorKind::Damaged, "found more bytes"),
    ];
    for (bytes, kind, text) in cases {
        let error = limiter(&clock).load(bytes).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn an_endless_input_is_not_read_forever() {
    let clock = ManualClock::new();
    let state = saved(&limiter(&clock));
    struct Counted<R>(R, usize);
    impl<R: std::io::Read> std::io::Read for Counted<R> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let read = self.0.read(buffer)?;
            self.1 += read;
            Ok(read)
        }
    }
    for head in [&b"tollgate"[..], &state[..20], &state[..30], &state] {
        let mut endless = Counted(std::io::Read::chain(head, std::io::repeat(1)), 0);
        assert!(limiter(&clock).load(&mut endless).is_err());
        assert!(endless.1 < 300_000, "{} bytes were read", endless.1);
    }
}

#[test]
fn a_failing_reader_or_writer_is_reported() {
    struct Fails;
    impl std::io::Read for Fails {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the disk is gone"))
        }
    }
    let clock = ManualClock::new();
    let full = full(&clock);
    let state = saved(&full);
    let half = std::io::Read::chain(&state[..100_000], Fails);
    let after = limiter(&clock);
    let mut small = [0; 100_000];
    for error in [after.load(half).unwrap_err(), full.save(&mut small[..]).unwrap_err()] {
        assert_eq!(error.kind(), StateErrorKind::Io, "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
    assert_eq!(after.stats().rows, Some(0));
}
