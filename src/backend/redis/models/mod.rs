//! Models of what callers do to the way to a server at once. What each was seen to catch: `proof/README.md`.

mod breaker;
mod lanes;
