//! Counts the allocations of each layer per request. Part of `make bench`.
//!
//! Prints, as Markdown, the number of allocations beyond those of the service without a layer, when a request is
//! allowed and when it is denied.

use tollgate_peers::{Counting, Kind, Stack, layers};

pub fn print() {
    Counting::begin();
    let [allowed, denied] = [Kind::Allowed, Kind::Denied].map(counted);
    println!("| extra allocations per request | allowed | denied |");
    println!("| --- | ---: | ---: |");
    for ((name, allowed), (_, denied)) in allowed.iter().zip(&denied) {
        println!("| {name} | {} | {} |", short(*allowed), short(*denied));
    }
}

fn counted(kind: Kind) -> Vec<(&'static str, f64)> {
    let callers = Stack::callers();
    let count = |stack: &mut Stack| {
        // All tables have grown after the first pass.
        stack.requests(&callers);
        let before = Counting::count();
        stack.requests(&callers);
        (Counting::count() - before) as f64 / callers.len() as f64
    };
    let counts: Vec<_> = layers(kind).iter_mut().map(|it| (it.name, it.without, count(it))).collect();
    let without = |name| counts.iter().find(|it| it.0 == name).expect("counted").2;
    let layers = counts.iter().filter(|(name, none, _)| name != none);
    layers.map(|(name, none, count)| (*name, count - without(*none))).collect()
}

fn short(count: f64) -> String {
    if (count - count.round()).abs() < 0.005 { format!("{count:.0}") } else { format!("{count:.2}") }
}
