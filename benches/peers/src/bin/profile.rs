//! One path, many times, for a profiler: `profile allowed 1000000`.
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tollgate::{Policy, Quota, RateLimiter, SECOND};
fn main() {
    let mut args = std::env::args().skip(1);
    let n: u64 = args.next().unwrap().parse().unwrap();
    let policy = Policy::new("bench", Quota::token_bucket(1, SECOND).capacity(4_000_000_000));
    let limiter = RateLimiter::default();
    let key = String::from("user-0123456789ab-12");
    let mut ok = 0u64;
    for _ in 0..n {
        match pin!(limiter.limit(&policy, &key)).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(d) => ok += u64::from(d.unwrap().is_allowed()),
            _ => {}
        }
    }
    println!("{ok}");
}
