#!/usr/bin/env bash
# Counts the instructions of each path under callgrind, and stores them in benches/instructions.md.
#
#   measure.sh          rewrites the counts; keeps the budgets, which are edited by hand
#   measure.sh --check  compares the counts with the stored table, by the rules in check.sh
#
# Only instructions in `counted` are counted, because the clock is calibrated before that. The setup is excluded by
# taking the difference between two runs. Because Valgrind hides the time stamp counter, reading the clock is a system
# call, whose instructions in the kernel are not counted.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kept="$here/../instructions.md"
few=1000
more=2000
# A growing table is enlarged at some of the keys only. The mean needs more of them.
more_growing=50000

command -v valgrind >/dev/null || { echo "valgrind is missing; run 'make tools'" >&2; exit 1; }
cargo build --release --quiet --manifest-path "$here/Cargo.toml"
target=$(cargo metadata --format-version 1 --no-deps --manifest-path "$here/Cargo.toml" |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
program="$target/release/tollgate-instructions"
out=$(mktemp -d)
trap 'rm -r "$out"' EXIT

count() {
    valgrind --tool=callgrind --toggle-collect='*::counted*' --callgrind-out-file="$out/counts" \
        "$program" "$1" "$2" 2>&1 </dev/null |
        awk '/Collected/ { print $4; found = 1 } END { exit !found }'
}

budget() {
    awk -F' *[|] *' -v path="$1" '$2 == path { print $4 }' "$kept"
}

{
    echo "# Instructions"
    echo
    echo "\`make instructions\` writes the counts. The budgets are edited by hand, with the reason in the commit."
    echo "\`make instructions-check\` fails if a count exceeds its budget, or the stored count by more than 10%."
    echo "Other crates have no budget. Counted under callgrind. Reading the clock is a system call there, which is mostly"
    echo "not counted."
    echo
    echo "$(rustc --version | cut -d' ' -f1-2), $(uname -m)"
    echo
    echo "| path | instructions | budget |"
    echo "| --- | ---: | ---: |"
    "$program" | while read -r path; do
        times=$more
        case $path in "decision, new key"*) times=$more_growing ;; esac
        before=$(count "$path" $few)
        after=$(count "$path" $((few + times)))
        echo "| $path | $(((after - before + times / 2) / times)) | $(budget "$path") |"
    done
} >"$out/table.md"

if [ "${1:-}" = --check ]; then
    "$here/check.sh" "$kept" "$out/table.md"
else
    cp "$out/table.md" "$kept"
    cat "$kept"
fi
