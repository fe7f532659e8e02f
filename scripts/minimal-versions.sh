#!/usr/bin/env bash
# Builds the crate with the oldest versions that Cargo.toml allows, and runs the library's own tests on them: a lower
# bound that is too low would otherwise break the build of somebody whose lock file is old.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r Cargo.toml README.md src tests examples "$copy"
mkdir "$copy/benches"
cp benches/*.rs "$copy/benches"
cd "$copy"

# Without what only tests need: its bounds are higher, and would hide ours. RUSTC_BOOTSTRAP lets a stable cargo do it.
cp Cargo.toml whole.toml
awk '/^\[/ { dev = /dev-dependencies/ } !dev' whole.toml >Cargo.toml
RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
cargo check --quiet --lib --all-features
cargo check --quiet --lib
cargo check --quiet --lib --no-default-features
echo "builds with the oldest versions that Cargo.toml allows"

# The tests ask for newer versions of a few crates (bytes, serde, hyper-util): cargo moves those, and keeps the others.
mv whole.toml Cargo.toml
cargo test --quiet --lib --all-features
