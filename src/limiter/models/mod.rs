//! Models of what callers do to a limiter at once. What each was seen to catch: `proof/README.md`.

mod cells;
mod whole;
