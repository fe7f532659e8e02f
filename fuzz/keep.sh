#!/usr/bin/env bash
# Reduces the corpora, together with the inputs that the last `run.sh` found, to the smallest inputs that reach every edge.
# Default: all targets.
#
#   fuzz/keep.sh [target...]
set -euo pipefail
cd "$(dirname "$0")"
export RUSTC_BOOTSTRAP=1
export ASAN_OPTIONS=quarantine_size_mb=4:malloc_context_size=0:${ASAN_OPTIONS:-}

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cargo fuzz list --fuzz-dir .)
fi
work=${CARGO_TARGET_DIR:-target}/found
kept=$(mktemp -d)
trap 'rm -rf "$kept"' EXIT
for target in "${targets[@]}"; do
    mkdir -p "$kept/$target" "$work/$target"
    # -use_counters=0, because counters would keep ten times as many inputs.
    cargo fuzz run --fuzz-dir . "$target" "$kept/$target" "corpus/$target" "$work/$target" -- \
        -set_cover_merge=1 -use_counters=0 -timeout=10 -detect_leaks=0 -close_fd_mask=1 >"$work/$target.keep.log" 2>&1
    rm -rf "corpus/$target"
    mv "$kept/$target" "corpus/$target"
    echo "$target: $(find "corpus/$target" -type f | wc -l) inputs, $(du -bs "corpus/$target" | cut -f1) bytes"
done
