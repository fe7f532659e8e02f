#!/usr/bin/env bash
# Counts the instructions of each path under callgrind, and keeps them in benches/instructions.md.
#
#   measure.sh          writes the table anew
#   measure.sh --check  fails if a path has grown by more than 3 % over the table that is kept
#
# Only what is done in `counted`: before that, the clock is calibrated, for as long as it takes. The difference between
# N and N + 100,000 times leaves out what is made once. Valgrind hides the time stamp counter, so the clock is read by a
# system call there, of which only the way into it counts.
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
    echo "Written by \`make instructions\`; \`make instructions-check\` fails if one has grown by more than $allowed %."
    echo "Counted under callgrind, which has no cheap clock: reading the time is left out for the most part."
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
        !($2 in kept) { print $2 ": not in the table; write it anew"; failed = 1; next }
        {
            part = ($3 - kept[$2]) * 100 / kept[$2]
            printf "%s: %d, kept %d (%+.1f %%)\n", $2, $3, kept[$2], part
            if (part > allowed) { print "  grown too much"; failed = 1 }
            delete kept[$2]
        }
        END { for (path in kept) { print path ": in the table, but not measured"; failed = 1 } exit failed }
    ' "$kept" "$out/table.md"
else
    cp "$out/table.md" "$kept"
    cat "$kept"
fi
