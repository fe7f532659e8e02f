#!/usr/bin/env bash
# Compares a table of instruction counts with the stored one.
#
#   check.sh STORED MEASURED  fails if a count exceeds its budget, or the stored count by more than 10 %, or if the tables
#                             have different paths. Prints all differences of more than 3 %.
#   check.sh --self-test      tests these rules
#
# Counts of different compilers or architectures are not comparable: this prints both and succeeds.
set -euo pipefail

check() {
    awk -F' *[|] *' '
        /^rustc / { platform[NR == FNR] = $0; next }
        $3 !~ /^[0-9]+$/ { next }
        NR == FNR { stored[$2] = $3; budget[$2] = $4; next }
        { order[++paths] = $2; measured[$2] = $3 }
        END {
            if (platform[1] == "" || platform[0] == "") { print "expected a line such as \"rustc 1.95.0, x86_64\" in both tables"; exit 1 }
            if (platform[1] != platform[0]) {
                print "not comparable: stored with " platform[1] ", measured with " platform[0]
                exit 0
            }
            for (i = 1; i <= paths; i++) {
                path = order[i]
                if (!(path in stored)) { fail(path ": not in the stored table; run `make instructions` and set a budget"); continue }
                growth = (measured[path] - stored[path]) * 100 / stored[path]
                is_peer = path ~ /^(tower_)?governor, /
                allowed = is_peer ? "another crate" : "budget " budget[path]
                printf "%s: %d, stored %d (%+.1f %%), %s\n", path, measured[path], stored[path], growth, allowed
                if (is_peer) continue
                if (budget[path] !~ /^[0-9]+$/) fail(path ": has no budget; set one by hand")
                else if (measured[path] > budget[path]) fail(path ": exceeds its budget")
                if (growth > 10) fail(path ": exceeds the stored count by more than 10 %")
                else if (growth > 3) print "  notice: more than 3 % above the stored count"
                else if (growth < -3) print "  improved by more than 3 %: run `make instructions`, and lower the budget"
            }
            for (path in stored) if (!(path in measured)) fail(path ": in the stored table, but not measured")
            exit failed
        }
        function fail(text) { print "  FAILED: " text; failed = 1 }
    ' "$1" "$2"
}

# Makes a table of one path.
table() {
    printf 'rustc %s\n\n| path | instructions | budget |\n| --- | ---: | ---: |\n| %s | %s | %s |\n' "$@"
}

# Checks that the comparison of two tables has the expected result and prints the expected text.
expect() {
    local name=$1 expected=$2 text=$3 result=0
    check "$out/stored" "$out/measured" >"$out/printed" || result=1
    if [ "$result" != "$expected" ] || ! grep -qF "$text" "$out/printed"; then
        echo "$name: expected the result $expected and the text '$text', found the result $result and:"
        cat "$out/printed"
        exit 1
    fi
}

self_test() {
    out=$(mktemp -d)
    trap 'rm -r "$out"' EXIT
    table '1.95.0, x86_64' hot 1000 1200 >"$out/stored"
    table '1.95.0, x86_64' hot 1000 '' >"$out/measured"
    expect 'same count' 0 '(+0.0 %), budget 1200'
    table '1.95.0, x86_64' hot 1040 '' >"$out/measured"
    expect '+4 %' 0 'notice: more than 3 %'
    table '1.95.0, x86_64' hot 1110 '' >"$out/measured"
    expect '+11 %' 1 'exceeds the stored count by more than 10 %'
    table '1.95.0, x86_64' hot 900 '' >"$out/measured"
    expect 'improvement' 0 'improved by more than 3 %'
    table '1.96.0, x86_64' hot 9000 '' >"$out/measured"
    expect 'another compiler' 0 'not comparable: stored with rustc 1.95.0, x86_64, measured with rustc 1.96.0, x86_64'
    table '1.95.0, aarch64' hot 9000 '' >"$out/measured"
    expect 'another architecture' 0 'not comparable'
    table '1.95.0, x86_64' cold 1000 '' >"$out/measured"
    expect 'new path' 1 'cold: not in the stored table'
    expect 'missing path' 1 'hot: in the stored table, but not measured'
    table '1.95.0, x86_64' hot 1000 1010 >"$out/stored"
    table '1.95.0, x86_64' hot 1011 '' >"$out/measured"
    expect 'above budget' 1 'exceeds its budget'
    table '1.95.0, x86_64' hot 1000 '' >"$out/stored"
    expect 'no budget' 1 'has no budget'
    table '1.95.0, x86_64' 'governor, hot' 1000 '' >"$out/stored"
    table '1.95.0, x86_64' 'governor, hot' 2000 '' >"$out/measured"
    expect 'another crate' 0 'another crate'
    echo "instruction check: all rules hold"
}

if [ "${1:-}" = --self-test ]; then self_test; else check "$1" "$2"; fi
