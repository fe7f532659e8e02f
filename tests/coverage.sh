#!/usr/bin/env bash
# Measures the line coverage of each module by the tests with all features. `make coverage` prints a table.
#
# Tests in `src/` are run, but their own lines are not counted. The run omits the examples and the longest tests. It
# also omits the doctests, because stable Rust cannot measure them.
#
# cargo-llvm-cov needs the LLVM tools that match the compiler's LLVM version: run `rustup component add llvm-tools`, or
# install a package such as llvm-22 and set LLVM_COV and LLVM_PROFDATA.
set -euo pipefail
cd "$(dirname "$0")/.."
lcov="${CARGO_TARGET_DIR:-target}/coverage.lcov"

targets=(--lib)
for file in tests/*.rs tests/*/main.rs; do
    name="${file#tests/}"
    name="${name%/main.rs}"
    name="${name%.rs}"
    case "$name" in
        flood | offenders) ;;
        *) targets+=(--test "$name") ;;
    esac
done

# Test failures are ignored, because instrumentation breaks tests that check time or allocations. The examples are not
# built here.
cargo llvm-cov --all-features "${targets[@]}" --ignore-run-fail --lcov --output-path "$lcov" -- \
    --skip no_short_history --skip quickstart --skip examples::

awk -v date="$(date -u +%F)" -v commit="$(git rev-parse --short HEAD)" -v here="$PWD/" '
    /^SF:/ {
        file = substr($0, 4)
        sub(here, "", file)
        module = file
        sub(/^src\//, "", module)
        sub(/\/.*|\.rs$/, "", module)
        # Find the first line of the tests in the file.
        end = file ~ /\/tests\.rs$/ ? 0 : 1e9
        for (n = 1; (getline line < file) > 0; n++) if (line == "#[cfg(test)]" && n < end) end = n
        close(file)
    }
    /^DA:/ {
        split(substr($0, 4), at, ",")
        if (at[1] < end && file ~ /^src\//) { lines[module]++; covered[module] += at[2] > 0 }
    }
    END {
        printf "# Line coverage\n\nWritten by `make coverage` on %s at commit %s.\n\n", date, commit
        print "| module | lines | covered | |\n| --- | ---: | ---: | ---: |"
        sort = "sort"
        for (module in lines) {
            share = 100 * covered[module] / lines[module]
            printf "| %s | %d | %d | %.1f %% |\n", module, lines[module], covered[module], share | sort
            all += lines[module]
            hit += covered[module]
        }
        close(sort)
        printf "| all | %d | %d | %.1f %% |\n", all, hit, 100 * hit / all
    }
' "$lcov"
