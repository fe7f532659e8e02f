//! Reserve now, run later: a queue of jobs, each of which knows when it will run as soon as it is put in.
//!
//! ```text
//! cargo run --example job_scheduling
//! ```
//!
//! A team has two units of work a second. A job of n units runs when the team has been paid its n, after all jobs
//! before it. Job 4 is cancelled while it is the last; job 5, put in after that, has its time:
//!
//! ```text
//! job 1 runs in 0.5 s
//! job 2 runs in 1.5 s
//! job 3 runs in 2.0 s
//! job 4 runs in 3.0 s
//! at 0.5 s: job 1, planned for 0.5 s
//! job 4 is cancelled
//! job 5 runs in 2.5 s
//! at 1.5 s: job 2, planned for 1.5 s
//! at 2.0 s: job 3, planned for 2.0 s
//! at 3.0 s: job 5, planned for 3.0 s
//! ```
//!
//! Cancelled between others, a job gives nothing back: those behind it keep the times that they were promised.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use tollgate::{LimitError, Policy, Quota, RateLimiter, Reservation, SECOND};

/// Capacity 0: no bursts, each job waits at least for its own units. With 1, one unit after an idle time would run at
/// once.
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

/// Jobs by the times at which they run. Turns of one team come in the order in which they were asked for; another
/// team's come in between.
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
        let turn = self.limiter.acquire(&JOBS, "team").cost(units).reserve().await?;
        self.added += 1;
        println!("job {} runs in {:.1} s", self.added, turn.delay().as_secs_f64());
        // The turn is held as long as the job is in the queue: thrown away together, nobody has to think of giving it
        // back. A queue in a database would store the time, and `into_receipt()` the turn.
        self.jobs.insert((Instant::now() + turn.delay(), self.added), turn);
        Ok(())
    }

    async fn cancel(&mut self, number: u32) -> Result<(), tollgate::backend::Error> {
        let entry = self.jobs.keys().copied().find(|(_, job)| *job == number);
        if let Some(turn) = entry.and_then(|entry| self.jobs.remove(&entry)) {
            // Dropping it would do the same, without reporting what became of the turn.
            let came_back = turn.cancel().await?;
            println!("job {number} is cancelled{}", if came_back { "" } else { ", its turn is lost" });
        }
        Ok(())
    }

    /// Waits for the time of the next job, and runs it; false if there is none.
    async fn run_next(&mut self) -> bool {
        let Some(((planned, number), turn)) = self.jobs.pop_first() else { return false };
        tokio::time::sleep_until(planned.into()).await;
        turn.into_receipt(); // from here on it is used up, whatever becomes of the job
        let since = |instant: Instant| (instant - self.began).as_secs_f64();
        println!("at {:.1} s: job {number}, planned for {:.1} s", since(Instant::now()), since(planned));
        true
    }
}
