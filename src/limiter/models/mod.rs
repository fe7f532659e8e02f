//! Models of concurrent calls to a limiter. `proof/README.md` lists the mutations that each model detects.

mod cells;
mod whole;
