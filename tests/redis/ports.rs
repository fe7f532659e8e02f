//! Ports for servers of one's own, which nobody else takes meanwhile.
//!
//! A port that the system calls free may be given away again before a server listens on it: to another test, or to
//! one's own next connection. These come from below or above those that the system gives away, and each only once.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// A port on which nobody listens, and which no other test of this process is given.
pub(crate) fn free_port() -> u16 {
    let mut range = RANGE.clone();
    range.find_map(|_| Some(next()).filter(|port| is_free(*port))).expect("a free port")
}

fn next() -> u16 {
    /// Tests of several checkouts may run at the same time.
    static GIVEN: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new((std::process::id() % 0xffff) as u16));
    RANGE.start + GIVEN.fetch_add(1, Ordering::Relaxed) % (RANGE.end - RANGE.start)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

static RANGE: LazyLock<Range<u16>> = LazyLock::new(|| {
    let given_away = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = given_away.split_whitespace().filter_map(|bound| bound.parse::<u16>().ok());
    let (low, high) = (bounds.next().unwrap_or(32768), bounds.next().unwrap_or(60999));
    let (below, above) = (10_000..low.max(10_000), high.saturating_add(1)..u16::MAX);
    let wider = if below.len() < above.len() { above } else { below };
    // Where the system gives away nearly all of them there is nothing to evade.
    if wider.len() < 2000 { 10_000..60_000 } else { wider }
});
