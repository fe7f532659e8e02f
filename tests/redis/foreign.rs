//! Keys of ours that hold something else: an error says so, whatever it is, and a reset mends it.

use proptest::prelude::*;
use tollgate::algorithm::{Ask, Micros, Receipt, State};
use tollgate::backend::{Adjustment, Backend, RedisBackend, RowId, Take};
use tollgate::{Digest, ErrorKind, HOUR, MINUTE, PolicyName, Quota};

use crate::random::cases;
use crate::rows;
use crate::server::Server;
use crate::set_clock::Window;

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

/// Every operation on the row; what may fail fails as `Protocol`, and nothing hangs or panics.
async fn bear(backend: &RedisBackend, take: &Take<'static>, receipt: &Receipt) -> Result<(), ErrorKind> {
    let settlement = Adjustment { row: take.row, quota: take.quota, receipt: *receipt, actual: 1 };
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
async fn a_row_of_another_length_is_an_error_until_somebody_removes_it() {
    let server = Server::start();
    let (backend, mut window) = (server.backend().await, Window::to(&server));
    let take = takes()[0];
    let name = backend.row_key(take.row.policy, take.row.key);
    for length in (0..32).chain(33..80) {
        window.write(&name, &vec![0; length]);
        let error = backend.acquire(&[take]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{length}: {error}");
        // It may be somebody else's: it is neither written into nor removed.
        assert_eq!(backend.reset(&[take.row]).await.unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(window.rows(std::slice::from_ref(&name)), [Some(vec![0; length])]);
        window.clear();
        assert_eq!(backend.acquire(&[take]).await.unwrap()[0].state.spent, 2.0, "{length}");
    }
}

#[test]
fn any_thirty_two_bytes_are_borne() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = Server::start();
    let backend = runtime.block_on(server.backend());
    let window = std::cell::RefCell::new(Window::to(&server));
    let name = backend.row_key(&POLICY, Digest::from_bits(7));
    // Anything; numbers of any size, some of them none; what a row could be.
    let odd =
        prop_oneof![any::<f64>(), prop::sample::select(vec![-1.0, 0.5, 1e300, f64::NAN, f64::INFINITY, 9e15, 1.7e15])];
    let stamp = prop_oneof![any::<u32>(), (0..4usize).prop_map(|i| takes()[i].quota.stamp())];
    let row = (odd.clone(), odd.clone(), odd, stamp, any::<u32>()).prop_map(|(spent, at, carry, stamp, expires)| {
        let mut bytes: Vec<u8> = [spent, at, carry].into_iter().flat_map(f64::to_le_bytes).collect();
        bytes.extend([stamp, expires].into_iter().flat_map(u32::to_le_bytes));
        bytes
    });
    let histories = (prop_oneof![prop::collection::vec(any::<u8>(), 32), row], 0..4usize);
    let mut runner = proptest::test_runner::TestRunner::new(cases(1500));
    let outcome = runner.run(&histories, |(bytes, i)| {
        let take = &takes()[i];
        let state =
            State { spent: 2.0, at: Micros::new(1_700_000_000_000_000), stamp: take.quota.stamp(), ..State::default() };
        window.borrow_mut().write(&name, &bytes);
        let borne = runtime.block_on(bear(&backend, take, &Receipt { cost: 2, state, due: state.at }));
        prop_assert_eq!(borne, Ok(()));
        runtime.block_on(async {
            let _ = backend.reset(&[take.row]).await;
            assert!(backend.acquire(&[*take]).await.unwrap().all_granted(), "a reset row is afresh");
        });
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// The server drops a row when the row itself says, not before it is worthless and not much later.
#[tokio::test]
async fn the_server_drops_a_row_when_it_says() {
    let server = Server::start();
    let (backend, mut window) = (server.backend().await, Window::to(&server));
    for take in takes() {
        let name = backend.row_key(take.row.policy, take.row.key);
        let now = backend.acquire(&[take]).await.unwrap()[0].now;
        let there = window.rows(std::slice::from_ref(&name));
        let (_, expires) = rows::row(there[0].as_deref().unwrap());
        let on_the_server: u64 = redis::cmd("EXPIRETIME").arg(&name).query(&mut server.admin()).unwrap();
        assert_eq!(u64::from(expires), on_the_server);
        let left = u64::from(expires) - now.get() / 1_000_000;
        let most = 2 * take.quota.window().as_secs() * 2 + 2;
        assert!((1..=most).contains(&left), "{left} s of {most}, {}", take.quota);
        backend.reset(&[take.row]).await.unwrap();
        assert_eq!(window.rows(&[name]), [None]);
    }
}
