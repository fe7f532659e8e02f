//! Models of concurrent calls to a limiter. `proof/README.md` lists what each has caught.

mod cells;
mod whole;
