//! Tests of waiting for reserved tokens: due times, cancellation, and resources that waiting requests must not hold.

mod calls;
mod cancelled;
mod clients;
mod dropped;
mod due_times;
mod extensions;
mod histories;
mod history;
mod jitter;
mod max_waiting;
mod pauses;
mod queue;
mod readiness;
mod rules;
mod upstream;
