//! How models run: a few threads, every order in which they can meet, every value that a load may see.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::model::Builder;
use loom::thread::{self, JoinHandle};

/// Runs a model in every order that there is.
pub(crate) fn every_order(model: impl Fn() + Send + Sync + 'static) {
    orders(None, model);
}

/// Runs a model in every order in which threads are interrupted no more than `times` where they could go on. Almost
/// every fault that is known shows with two.
pub(crate) fn orders_with_interruptions(times: usize, model: impl Fn() + Send + Sync + 'static) {
    orders(Some(times), model);
}

fn orders(interruptions: Option<usize>, model: impl Fn() + Send + Sync + 'static) {
    let count = Arc::new(AtomicUsize::new(0));
    let mut checker = Builder::new();
    checker.max_branches = 100_000;
    checker.preemption_bound = interruptions;
    let (model, counted) = (Arc::new(model), Arc::clone(&count));
    checker.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        let model = Arc::clone(&model);
        // The checker's first thread has too little room for a decision.
        thread(move || model()).join().expect("the model holds");
    });
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    println!("{} orders: {name}", count.load(Ordering::Relaxed));
}

/// One of a model's threads; there may be three besides the model itself.
pub(crate) fn thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    thread::Builder::new().stack_size(STACK).spawn(run).expect("the checker has room for one more")
}

/// Words.
const STACK: usize = 0x8000;
