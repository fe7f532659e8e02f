//! The time to look up a user agent hardly depends on the number of patterns.

use std::hint::black_box;
use std::time::{Duration, Instant};

use tollgate::protection::{DenyList, DenyRule, Signals};

/// Measures 200 lookups of a user agent that matches none of the patterns, and returns the shortest time.
fn shortest_lookup(patterns: usize, agent: &str) -> Duration {
    let rules = (0..patterns).map(|i| DenyRule::user_agent(&format!("*bad-bot-{i}/*")).unwrap());
    let list = DenyList::from_iter(rules);
    let caller = Signals::new().user_agent(agent);
    let lookup = || {
        let begin = Instant::now();
        assert!(black_box(&list).find(None, black_box(&caller)).is_none());
        begin.elapsed()
    };
    (0..200).map(|_| lookup()).min().unwrap()
}

#[test]
fn matching_a_thousand_patterns_takes_about_as_long_as_matching_ten() {
    let browser = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/124.0 Safari/537.36 ";
    // The second user agent repeats the prefix that all patterns share.
    for agent in [browser.repeat(11), "bad-bot-".repeat(128)] {
        let (ten, thousand) = (shortest_lookup(10, &agent[..1024]), shortest_lookup(1000, &agent[..1024]));
        assert!(thousand < 20 * ten, "{ten:?} with ten patterns, {thousand:?} with a thousand");
    }
}
