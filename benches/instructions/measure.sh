#!/usr/bin/env bash
# Counts the instructions of each path under callgrind, and stores them in benches/instructions.md.
#
#   measure.sh          rewrites the table
#   measure.sh --check  fails if a path exceeds the stored count by more than 3%
#
# Only instructions in `counted` are counted, because the clock is calibrated before that. The setup is excluded by
# taking the difference between N and N + 100,000 runs. Because Valgrind hides the time stamp counter, reading the clock
# is a system call, whose instructions in the kernel are not counted.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
kept="$here/../instructions.md"
more=100000
allowed=3

command -v valgrind >/dev/null || { apt-get update && apt-get install -y --no-install-recommends valgrind; }
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

{
    echo "# Instructions"
    echo
    echo "Written by \`make instructions\`; \`make instructions-check\` fails if a count has grown by more than $allowed%."
    echo "Counted under callgrind. Reading the clock is a system call there, which is mostly not counted."
    echo
    echo "$(rustc --version | cut -d' ' -f1-2), $(uname -m)"
    echo
    echo "| path | instructions |"
    echo "| --- | ---: |"
    "$program" | while read -r path; do
        few=$(count "$path" 1000)
        many=$(count "$path" $((1000 + more)))
        echo "| $path | $(((many - few + more / 2) / more)) |"
    done
} >"$out/table.md"

if [ "${1:-}" = --check ]; then
    awk -F' *[|] *' -v allowed=$allowed '
        $3 !~ /^[0-9]+$/ { next }
        NR == FNR { kept[$2] = $3; next }
        !($2 in kept) { print $2 ": not in the table; rewrite the table"; failed = 1; next }
        {
            part = ($3 - kept[$2]) * 100 / kept[$2]
            printf "%s: %d, stored %d (%+.1f %%)\n", $2, $3, kept[$2], part
            if (part > allowed) { print "  exceeds the maximum growth"; failed = 1 }
            delete kept[$2]
        }
        END { for (path in kept) { print path ": in the table, but not measured"; failed = 1 } exit failed }
    ' "$kept" "$out/table.md"
else
    cp "$out/table.md" "$kept"
    cat "$kept"
fi
