//! Says to the crate's code, and to no other, that it is built on loom's locks.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(tollgate_fuzzing, tollgate_models)");
    println!("cargo::rustc-cfg=tollgate_models");
}
