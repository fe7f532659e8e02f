//! Says to the crate's code, and to no other, which checker's locks it is built on.

fn main() {
    let checker = if std::env::var_os("CARGO_FEATURE_SHUTTLE").is_some() { "shuttle" } else { "loom" };
    println!("cargo::rustc-check-cfg=cfg(loom, shuttle)");
    println!("cargo::rustc-cfg={checker}");
}
