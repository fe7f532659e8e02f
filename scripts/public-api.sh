#!/usr/bin/env bash
# Every public item with all features, beside `tests/public-api.txt`: what a commit does to the API shows in its diff.
# With --write, writes that file. It reads rustdoc's JSON, whose format changes with the compiler: cargo-public-api 0.52
# reads that of Rust 1.95, and another Rust may render an item in other words.
set -euo pipefail
cd "$(dirname "$0")/.."
kept=tests/public-api.txt
made=$(mktemp)
trap 'rm -f "$made"' EXIT
target=${CARGO_TARGET_DIR:-target}
# RUSTC_BOOTSTRAP: a stable rustdoc writes JSON too. Left to itself, the tool would want a nightly one.
RUSTC_BOOTSTRAP=1 cargo rustdoc --quiet --lib --all-features --target-dir "$target" -- \
  -Z unstable-options --output-format json --cap-lints allow
# Send, Sync and Unpin are kept, since losing one breaks callers; blanket implementations, and traits that no stable
# program can name, are not.
cargo public-api --rustdoc-json "$target/doc/tollgate.json" --omit blanket-impls |
  grep -v -E '^impl.* core::marker::(Freeze|UnsafeUnpin|StructuralPartialEq) for ' >"$made"
if [[ ${1:-} == --write ]]; then
  cp "$made" "$kept"
  echo "$kept: $(wc -l <"$kept") items"
elif ! diff -u "$kept" "$made"; then
  echo "the public API is not that of $kept: if that is meant, 'make public-api' writes it"
  exit 1
fi
