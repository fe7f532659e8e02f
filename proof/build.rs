//! Sets `cfg(tollgate_models)` for this package only, so that the crate uses loom's locks.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(tollgate_fuzzing, tollgate_models)");
    println!("cargo::rustc-cfg=tollgate_models");
}
