#!/usr/bin/env bash
# Builds the crate with the oldest dependencies that Cargo.toml allows, and runs the library's tests with them. A lower bound
# that is too low would break builds with an old lock file.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r Cargo.toml README.md src tests examples "$copy"
mkdir "$copy/benches"
cp benches/*.rs "$copy/benches"
cd "$copy"

# The dev-dependencies are removed, because their higher bounds would hide the crate's bounds. RUSTC_BOOTSTRAP enables
# the flag in a stable cargo.
cp Cargo.toml whole.toml
awk '/^\[/ { dev = /dev-dependencies/ } !dev' whole.toml >Cargo.toml
RUSTC_BOOTSTRAP=1 cargo update --quiet -Z direct-minimal-versions
cargo check --quiet --lib --all-features
cargo check --quiet --lib
cargo check --quiet --lib --no-default-features
echo "builds with the oldest versions that Cargo.toml allows"

# The tests need newer versions of some crates (bytes, serde, hyper-util). Cargo updates those and keeps the others.
mv whole.toml Cargo.toml
cargo test --quiet --lib --all-features
