#!/usr/bin/env bash
# Compares the public items (with all features) with tests/public-api.txt, so that the diff of a commit shows API changes.
# --write rewrites the file. rustdoc's JSON format depends on the compiler: cargo-public-api 0.52 reads the format of
# Rust 1.95, and other versions may render items differently.
set -euo pipefail
cd "$(dirname "$0")/.."
kept=tests/public-api.txt
made=$(mktemp)
trap 'rm -f "$made"' EXIT
target=${CARGO_TARGET_DIR:-target}
# RUSTC_BOOTSTRAP lets a stable rustdoc write JSON; by default, the tool would use a nightly toolchain.
RUSTC_BOOTSTRAP=1 cargo rustdoc --quiet --lib --all-features --target-dir "$target" -- \
  -Z unstable-options --output-format json --cap-lints allow
# Send, Sync and Unpin are kept, since losing one breaks callers. Blanket implementations, and traits that stable programs
# cannot name, are omitted.
cargo public-api --rustdoc-json "$target/doc/tollgate.json" --omit blanket-impls |
  grep -v -E '^impl.* core::marker::(Freeze|UnsafeUnpin|StructuralPartialEq) for ' >"$made"
if [[ ${1:-} == --write ]]; then
  cp "$made" "$kept"
  echo "$kept: $(wc -l <"$kept") items"
elif ! diff -u "$kept" "$made"; then
  echo "the public API differs from $kept; if that is intended, run 'make public-api'"
  exit 1
fi
