//! Unique ports for test servers. The system may assign a free port to another test, or to an outgoing connection,
//! before the server listens on it. If possible, the ports from this module are therefore outside the system's
//! ephemeral range. Each port is used only once.

use std::net::TcpListener;
use std::ops::Range;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Returns a free port that no other test in this process gets.
pub(crate) fn free_port() -> u16 {
    let mut range = RANGE.clone();
    range.find_map(|_| Some(next()).filter(|port| is_free(*port))).expect("expected a free port")
}

fn next() -> u16 {
    /// The first port depends on the process, because several processes may run tests at the same time.
    static NEXT: LazyLock<AtomicU16> = LazyLock::new(|| AtomicU16::new((std::process::id() % 0xffff) as u16));
    RANGE.start + NEXT.fetch_add(1, Ordering::Relaxed) % (RANGE.end - RANGE.start)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

static RANGE: LazyLock<Range<u16>> = LazyLock::new(|| {
    let ephemeral = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut bounds = ephemeral.split_whitespace().filter_map(|bound| bound.parse::<u16>().ok());
    let (low, high) = (bounds.next().unwrap_or(32768), bounds.next().unwrap_or(60999));
    let (below, above) = (10_000..low.max(10_000), high.saturating_add(1)..u16::MAX);
    let wider = if below.len() < above.len() { above } else { below };
    // If the ephemeral range covers nearly all ports, use ports within it.
    if wider.len() < 2000 { 10_000..60_000 } else { wider }
});
