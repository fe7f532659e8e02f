//! Measures layers around a service that responds immediately, interleaved in one process. Part of `make bench`.
//!
//! Prints Markdown tables with the nanoseconds per request, for requests from 10,000 addresses in turn, and the
//! difference from the service without a layer. Creating the request is included.

use std::net::IpAddr;
use std::time::Instant;

use tollgate_peers::{Kind, ROUND, Stack, interleaved, layers, ratio, rounds};

pub fn print() {
    println!(
        "| through `Service::call` | path | ns | beyond no layer, ns | tollgate with headers : this | without : this |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: |");
    for (path, kind) in [("allowed", Kind::Allowed), ("denied", Kind::Denied)] {
        let mut stacks = layers(kind);
        let callers = Stack::callers();
        for stack in &mut stacks {
            let passed = stack.requests(&callers);
            assert!(passed == callers.len(), "{}: only {passed} of the first requests passed", stack.name);
        }
        let mut cursors = vec![0; stacks.len()];
        let times = interleaved(rounds(), stacks.len(), |i| time(&mut stacks[i], kind, &callers, &mut cursors[i]));
        let of = |name: &str| stacks.iter().position(|it| it.name == name).expect("measured");
        let beyond: Vec<_> = (0..stacks.len()).map(|i| times[i] - times[of(stacks[i].without)]).collect();
        for (i, stack) in stacks.iter().enumerate() {
            print!("| {} | {path} | {:.0} |", stack.name, times[i]);
            if stack.name == stack.without {
                println!(" | | |");
            } else {
                let to = |name: &str| ratio(beyond[of(name)] / beyond[i]);
                println!(" {:.0} | {} | {} |", beyond[i], to("tollgate, headers"), to("tollgate, no headers"));
            }
        }
    }
}

/// Returns the nanoseconds per request in one round.
fn time(stack: &mut Stack, kind: Kind, callers: &[IpAddr], cursor: &mut usize) -> f64 {
    let begin = Instant::now();
    let (mut requests, mut passed) = (0, 0);
    while begin.elapsed() < ROUND {
        passed += stack.requests(&callers[*cursor..*cursor + 100]);
        requests += 100;
        *cursor = (*cursor + 100) % callers.len();
    }
    let nanos = begin.elapsed().as_nanos() as f64;
    let expected = if kind == Kind::Allowed || stack.name == stack.without { requests } else { 0 };
    assert!(passed == expected, "{}: {passed} of {requests} passed, not {expected}", stack.name);
    nanos / requests as f64
}
