#!/usr/bin/env bash
# Line coverage by room, over the tests with all features: `make coverage` writes `tests/coverage.md`.
#
# Tests that live in `src/` are not counted as covered lines, though they are run. Left out are the examples, what runs
# for long what others run briefly (two floods of millions of keys, all short histories there are), and the examples in
# the documentation, which stable Rust cannot count.
#
# cargo-llvm-cov needs LLVM's tools of the compiler's own version: `rustup component add llvm-tools`, or a package such
# as llvm-22, named by LLVM_COV and LLVM_PROFDATA.
set -euo pipefail
cd "$(dirname "$0")/.."
lcov="${CARGO_TARGET_DIR:-target}/coverage.lcov"

targets=(--lib)
for file in tests/*.rs tests/*/main.rs; do
    name="${file#tests/}"
    name="${name%/main.rs}"
    name="${name%.rs}"
    case "$name" in
        architecture | examples | flood | offenders) ;;
        *) targets+=(--test "$name") ;;
    esac
done

# Counting makes everything slower; what a test says of time and allocations is not at stake here.
# The quickstart is an example, which is not built here.
cargo llvm-cov --all-features "${targets[@]}" --ignore-run-fail --lcov --output-path "$lcov" -- \
    --skip no_short_history --skip quickstart

awk -v date="$(date -u +%F)" -v commit="$(git rev-parse --short HEAD)" -v here="$PWD/" '
    /^SF:/ {
        file = substr($0, 4)
        sub(here, "", file)
        room = file
        sub(/^src\//, "", room)
        sub(/\/.*|\.rs$/, "", room)
        # Where the tests of the file begin.
        end = file ~ /\/tests\.rs$/ ? 0 : 1e9
        for (n = 1; (getline line < file) > 0; n++) if (line == "#[cfg(test)]" && n < end) end = n
        close(file)
    }
    /^DA:/ {
        split(substr($0, 4), at, ",")
        if (at[1] < end && file ~ /^src\//) { lines[room]++; covered[room] += at[2] > 0 }
    }
    END {
        printf "# Line coverage\n\nWritten by `make coverage`, %s, at %s.\n\n", date, commit
        print "| room | lines | covered | |\n| --- | ---: | ---: | ---: |"
        sort = "sort"
        for (room in lines) {
            share = 100 * covered[room] / lines[room]
            printf "| %s | %d | %d | %.1f %% |\n", room, lines[room], covered[room], share | sort
            all += lines[room]
            hit += covered[room]
        }
        close(sort)
        printf "| all | %d | %d | %.1f %% |\n", all, hit, 100 * hit / all
    }
' "$lcov" | tee tests/coverage.md
