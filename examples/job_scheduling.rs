//! A job queue that reserves a job's tokens when the job is added, so that the job's due time is known immediately.
//!
//! Run it with `cargo run --example job_scheduling`. A team can do two units of work per second. Each job waits until
//! the units of all earlier jobs and its own units have been refilled. Job 4 is canceled while it is the last in the
//! queue, so its units go to job 5, which is added next:
//! ```text
//! job 1 runs in 0.5 s
//! job 2 runs in 1.5 s
//! job 3 runs in 2.0 s
//! job 4 runs in 3.0 s
//! at 0.5 s: job 1, planned for 0.5 s
//! job 4 is canceled
//! job 5 runs in 2.5 s
//! at 1.5 s: job 2, planned for 1.5 s
//! at 2.0 s: job 3, planned for 2.0 s
//! at 3.0 s: job 5, planned for 3.0 s
//! ```
//!
//! If other jobs were added after a job, canceling that job returns no tokens, and the later jobs keep their due times.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use tollgate::{LimitError, Policy, Quota, RateLimiter, Reservation, SECOND};

/// With a capacity of 0, there are no bursts: each job waits until its units are refilled, even after an idle period.
const JOBS: Policy = Policy::new("jobs", Quota::token_bucket(2, SECOND).capacity(0).unlimited_reservations());

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut queue = Queue::new();
    for units in [1, 2, 1, 2] {
        queue.add(units).await?;
    }
    queue.run_next().await;
    queue.cancel(4).await?;
    queue.add(2).await?;
    while queue.run_next().await {}
    Ok(())
}

/// The jobs of all teams, sorted by due time. The reservations of each team are due in the order in which they were
/// made.
struct Queue {
    limiter: RateLimiter,
    began: Instant,
    added: u32,
    jobs: BTreeMap<(Instant, u32), Reservation>,
}

impl Queue {
    fn new() -> Queue {
        Queue { limiter: RateLimiter::default(), began: Instant::now(), added: 0, jobs: BTreeMap::new() }
    }

    async fn add(&mut self, units: u64) -> Result<(), LimitError> {
        let reservation = self.limiter.acquire(&JOBS, "team").cost(units).reserve().await?;
        self.added += 1;
        println!("job {} runs in {:.1} s", self.added, reservation.delay().as_secs_f64());
        // If the queue is in a database, store the due time there and call `into_receipt()`.
        self.jobs.insert((Instant::now() + reservation.delay(), self.added), reservation);
        Ok(())
    }

    async fn cancel(&mut self, number: u32) -> Result<(), tollgate::backend::Error> {
        let entry = self.jobs.keys().copied().find(|(_, job)| *job == number);
        if let Some(reservation) = entry.and_then(|entry| self.jobs.remove(&entry)) {
            // Dropping the reservation would keep the charge.
            let given_back = reservation.cancel().await?;
            println!("job {number} is canceled{}", if given_back { "" } else { ", its reservation is forfeited" });
        }
        Ok(())
    }

    /// Waits until the next job is due and runs it. Returns `false` if the queue is empty.
    async fn run_next(&mut self) -> bool {
        let Some(((planned, number), reservation)) = self.jobs.pop_first() else { return false };
        tokio::time::sleep_until(planned.into()).await;
        reservation.into_receipt(); // the tokens stay spent even if the job fails
        let since = |instant: Instant| (instant - self.began).as_secs_f64();
        println!("at {:.1} s: job {number}, planned for {:.1} s", since(Instant::now()), since(planned));
        true
    }
}
