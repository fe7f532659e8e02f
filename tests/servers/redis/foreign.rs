//! Foreign values stored under row keys. Operations on these rows fail with an error.

use proptest::prelude::*;
use tollgate::algorithm::{Ask, ChargeRecord, Micros, State};
use tollgate::backend::{Adjustment, Backend, RedisBackend, RowId, Take};
use tollgate::{HOUR, MINUTE, Quota, backend::ErrorKind, key::Digest, policy::PolicyName};

use super::rows::{self, OURS};
use super::set_clock::Window;
use crate::support::generators::cases;
use crate::support::server::Server;

static POLICY: PolicyName = PolicyName::new("foreign");

fn takes() -> [Take<'static>; 4] {
    let row = RowId { policy: &POLICY, key: Digest::from_bits(7) };
    let quotas = [
        Quota::token_bucket(10, HOUR),
        Quota::token_bucket(7, MINUTE).max_reserved(20),
        Quota::fixed_window(10, HOUR).unlimited_reservations(),
        Quota::sliding_window(10, HOUR),
    ];
    quotas.map(|quota| Take::new(row, &quota, Ask::cost(2).reserve()))
}

/// Peeks at the row, charges it and settles a charge. Returns the kind of the first error that is not `Protocol`.
async fn run_every_operation(
    backend: &RedisBackend,
    take: &Take<'static>,
    receipt: &ChargeRecord,
) -> Result<(), ErrorKind> {
    let settlement = Adjustment { row: take.row, window: 0, quota: take.quota, receipt: *receipt, actual: 1 };
    let kinds = [
        backend.peek(&[*take]).await.err(),
        backend.acquire(&[*take]).await.err(),
        backend.acquire(&[*take, *take]).await.err(),
        backend.settle(&[settlement]).await.err(),
    ];
    match kinds.into_iter().flatten().map(|error| error.kind()).find(|kind| *kind != ErrorKind::Protocol) {
        Some(kind) => Err(kind),
        None => Ok(()),
    }
}

#[tokio::test]
async fn a_row_with_the_wrong_length_causes_errors_until_it_is_removed() {
    let server = Server::start();
    let (backend, mut window) = (server.backend().await, Window::to(&server));
    let take = takes()[0];
    let name = backend.row_key(take.row.policy, take.row.key);
    for length in (0..40).chain(41..80) {
        window.write(&name, &vec![0; length]);
        let error = backend.acquire(&[take]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{length}: {error}");
        assert_eq!(backend.reset(&[take.row]).await.unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(window.rows(std::slice::from_ref(&name)), [Some(vec![0; length])]);
        window.clear();
        assert_eq!(backend.acquire(&[take]).await.unwrap()[0].state.spent, 2.0, "{length}");
    }
}

#[test]
fn arbitrary_rows_of_forty_bytes_do_not_cause_a_panic() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::start();
    let backend = runtime.block_on(server.backend());
    let window = std::cell::RefCell::new(Window::to(&server));
    let name = backend.row_key(&POLICY, Digest::from_bits(7));
    // The values are random bytes, random bytes after a valid header, and rows with unusual numbers, including NaN.
    let odd =
        prop_oneof![any::<f64>(), prop::sample::select(vec![-1.0, 0.5, 1e300, f64::NAN, f64::INFINITY, 9e15, 1.7e15])];
    let stamp = prop_oneof![any::<u32>(), (0..4usize).prop_map(|i| tollgate::algorithm::stamp(&takes()[i].quota))];
    let row = (odd.clone(), odd.clone(), odd, stamp, any::<u32>()).prop_map(|(spent, at, carry, stamp, expires)| {
        let numbers = [spent, at, carry].into_iter().flat_map(f64::to_le_bytes);
        let seconds = [stamp, expires].into_iter().flat_map(u32::to_le_bytes);
        let header = OURS.into_iter().chain(expires.to_le_bytes());
        header.chain(numbers).chain(seconds).collect()
    });
    let ours = prop::collection::vec(any::<u8>(), 36).prop_map(|bytes| [&OURS[..], &bytes].concat());
    let histories = (prop_oneof![prop::collection::vec(any::<u8>(), 40), ours, row], 0..4usize);
    let mut runner = proptest::test_runner::TestRunner::new(cases(1500));
    let outcome = runner.run(&histories, |(bytes, i)| {
        let take = &takes()[i];
        let state = State {
            spent: 2.0,
            at: Micros::new(1_700_000_000_000_000),
            stamp: tollgate::algorithm::stamp(&take.quota),
            ..State::default()
        };
        window.borrow_mut().write(&name, &bytes);
        let result =
            runtime.block_on(run_every_operation(&backend, take, &ChargeRecord { cost: 2, state, due: state.at }));
        prop_assert_eq!(result, Ok(()));
        runtime.block_on(async {
            if backend.reset(&[take.row]).await.is_err() {
                assert_ne!(bytes[..4], OURS);
                window.borrow_mut().clear();
            }
            assert!(backend.acquire(&[*take]).await.unwrap().all_granted(), "the reset must restore the full quota");
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Regression: a foreign value of seven bytes made 128 of 501 calls fail, because they were in the same batch as the
/// call that read the value.
#[tokio::test]
async fn only_operations_on_a_row_with_a_foreign_value_fail() {
    let server = Server::start();
    let (backend, mut window, mut admin) = (server.backend().await, Window::to(&server), server.admin());
    let quota = Quota::token_bucket(10, HOUR);
    let take = |key| Take::new(RowId { policy: &POLICY, key: Digest::from_bits(key) }, &quota, Ask::cost(1));
    let name = backend.row_key(&POLICY, Digest::from_bits(7));
    let row = |version: u8, sections: u8| [&[version, 1, sections, 0][..], &[0; 36]].concat();
    let damaged = [&OURS[..], &[0; 4], &f64::NAN.to_le_bytes(), &[0; 24]].concat();
    for (value, found) in [
        (None, "a value of a different type"),
        (Some(vec![]), "an empty string"),
        (Some(vec![b'x'; 7]), "7 bytes with version 120"),
        (Some(row(3, 0)), "40 bytes with version 3"),
        (Some(row(2, 1)), "40 bytes with version 2"),
        (Some(vec![2, 1, 1, 0].into_iter().chain([0; 60]).collect()), "64 bytes with version 2"),
        (Some(damaged), "numbers out of range"),
        (Some([&[2, 1, 1, 0][..], &[0; 36], &f64::NAN.to_le_bytes(), &[0; 24]].concat()), "numbers out of range"),
    ] {
        window.clear();
        match &value {
            Some(bytes) => window.write(&name, bytes),
            None => redis::cmd("HSET").arg(&name).arg("a").arg("b").exec(&mut admin).unwrap(),
        }
        let dump = |admin: &mut redis::Connection| redis::cmd("DUMP").arg(&name).query::<Vec<u8>>(admin).unwrap();
        let before = dump(&mut admin);
        let alone: Vec<_> = (0..501).map(|key| backend.acquire(&[take(key)])).collect();
        let pairs: Vec<_> = [[5, 6], [6, 7], [7, 6], [6, 8]].map(|keys| backend.acquire(&keys.map(take))).into();
        let peek = backend.peek(&[take(7)]);
        let reset = backend.reset(&[take(8).row]);
        let mut errors = Vec::new();
        for (key, answer) in alone.into_iter().enumerate() {
            match answer.await {
                Ok(steps) => assert!(steps.all_granted() && key != 7, "{found}: {key}"),
                Err(error) => errors.push((key, error)),
            }
        }
        let [(7, error)] = &errors[..] else { panic!("{found}: {errors:?}") };
        assert_eq!(error.kind(), ErrorKind::Protocol);
        for part in
            [&*name, "version 2, up to 8 windows", &format!("found {found}"), "delete it, or use a different prefix"]
        {
            assert!(error.to_string().contains(part), "{error}");
        }
        let mut granted = Vec::new();
        for pair in pairs {
            granted.push(pair.await.map(|steps| steps.all_granted()).map_err(|error| error.kind()));
        }
        let refused = Err(ErrorKind::Protocol);
        assert_eq!(granted, [Ok(true), refused, refused, Ok(true)], "{found}");
        assert_eq!(peek.await.unwrap_err().kind(), ErrorKind::Protocol);
        reset.await.unwrap();
        // The value was not overwritten, and no call that includes its key was charged.
        assert_eq!(dump(&mut admin), before, "{found}");
        let spent = |steps: &[tollgate::algorithm::Step]| steps[0].state.spent;
        assert_eq!(spent(&backend.peek(&[take(6)]).await.unwrap()), 3.0 + 1.0, "{found}");
        assert_eq!(spent(&backend.peek(&[take(8)]).await.unwrap()), 0.0 + 1.0, "{found}");
    }
}

#[tokio::test]
async fn a_reset_removes_a_damaged_row() {
    let server = Server::start();
    let (backend, mut window) = (server.backend().await, Window::to(&server));
    let take = takes()[0];
    let name = backend.row_key(take.row.policy, take.row.key);
    window.write(&name, &[&OURS[..], &[0xff; 36]].concat());
    assert_eq!(backend.acquire(&[take]).await.unwrap_err().kind(), ErrorKind::Protocol);
    let (reset, after) = (backend.reset(&[take.row]), backend.acquire(&[take]));
    reset.await.unwrap();
    assert_eq!(after.await.unwrap()[0].state.spent, 2.0);
}

#[tokio::test]
async fn a_row_expires_at_the_time_in_its_header() {
    let server = Server::start();
    let (backend, mut window) = (server.backend().await, Window::to(&server));
    for take in takes() {
        let name = backend.row_key(take.row.policy, take.row.key);
        let now = backend.acquire(&[take]).await.unwrap()[0].now;
        let stored = window.rows(std::slice::from_ref(&name));
        let (_, expires) = rows::row(stored[0].as_deref().unwrap());
        // Redis 6 lacks `EXPIRETIME`, so this script adds the remaining time to the current time. Rounding to the
        // nearest second tolerates a delay of up to half a second.
        let expire_time = "local now, left = redis.call('TIME'), redis.call('PTTL', KEYS[1])
            return math.floor(now[1] + (now[2] / 1000 + left) / 1000 + 0.5)";
        let mut command = redis::cmd("EVAL");
        let on_the_server: u64 = command.arg(expire_time).arg(1).arg(&name).query(&mut server.admin()).unwrap();
        assert_eq!(u64::from(expires), on_the_server);
        let left = u64::from(expires) - now.get() / 1_000_000;
        let most = 2 * take.quota.window().as_secs() * 2 + 2;
        assert!((1..=most).contains(&left), "expires in {left} s, expected at most {most} s: {}", take.quota);
        backend.reset(&[take.row]).await.unwrap();
        assert_eq!(window.rows(&[name]), [None]);
    }
}
