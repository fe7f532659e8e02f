#!/usr/bin/env bash
# Runs exactly the tests named in list.txt and writes the results to THREATS.md. `make threats` runs this script.
#
# A threat fails if any of its tests is missing, is not run, or fails. The script fails if any threat fails.
# Optional arguments: the paths of the list and the table.
set -uo pipefail
cd "$(dirname "$0")/../.."
list=${1:-tests/threats/list.txt}
table=${2:-THREATS.md}
[ -f "$list" ] || { echo "expected the path of a list, found $list" >&2; exit 2; }
log=$(mktemp -d)
trap 'rm -rf "$log"' EXIT
mkdir "$log/out"

# Run the tests of each target together, by exact name. The code below reads the results from the output.
for target in $(awk '/^[a-z]/ && $1 != "doc" && $1 != "client" { print $1 }' "$list" | sort -u); do
    mapfile -t names < <(awk -v target="$target" '$1 == target { print $2 }' "$list" | sort -u)
    echo "threats: ${#names[@]} tests of $target" >&2
    if [ "$target" = lib ]; then which=(--lib); else which=(--test "$target"); fi
    cargo test --quiet --all-features "${which[@]}" -- --format pretty --exact "${names[@]}" \
        >"$log/out/$target" 2>"$log/err" </dev/null || tail -n 40 "$log/err" "$log/out/$target" >&2
done

# Run the tests of the browser package, file by file.
mapfile -t files < <(awk '$1 == "client" { print $2 }' "$list" | sort -u)
if ((${#files[@]})); then
    echo "threats: client tests: ${files[*]}" >&2
    (cd client && npm ci --no-audit --no-fund && npm run build && npm run build:tests) >"$log/err" 2>&1 ||
        tail -n 40 "$log/err" >&2
fi
for file in "${files[@]}"; do
    (cd client && node --test --test-reporter=tap "build/tests/$file.test.js") | sed -n "s/^ok [0-9]* - /client $file /p"
done | grep -Fxf "$list" >"$log/passed"

# Append "target name" to "$log/passed" for each test that passed.
for file in "$log"/out/*; do
    awk -v target="$(basename "$file")" '$1 == "test" && $NF == "ok" { print target, $2 }' "$file"
done >>"$log/passed"

awk -v passed="$log/passed" '
    BEGIN {
        while ((getline line < passed) > 0) { ok[line] = 1; tests++ }
        print "# Threats\n"
        print "The threats to a rate limiter in front of a service, what tollgate does about each, and the tests that check it."
        print "`make threats` generates this file by running the tests in `tests/threats/list.txt`. Do not edit it.\n"
        print "| # | Threat | What tollgate does | Evidence | Result |"
        print "| ---: | --- | --- | --- | --- |"
    }
    function row() {
        if (number == "") return
        if (found == all && all > 0) { result = "PASS " found "/" all; good++ } else result = "**FAIL** " found "/" all
        printf "| %s | %s | %s | %s | %s |\n", number, threat, done, held, result
        threats++
    }
    /^#/ || /^$/ { next }
    /^\[/ {
        row()
        number = substr($1, 2, length($1) - 2)
        threat = substr($0, length($1) + 2)
        done = held = ""
        found = all = 0
        next
    }
    /^>/ { done = done (done == "" ? "" : " ") substr($0, 3); next }
    {
        all++
        if ($1 == "doc") {
            heading = substr($0, length($1 " " $2) + 2)
            here = 0
            while ((getline line < $2) > 0) if (line == heading) here = 1
            close($2)
            name = "`" $2 "`, " substr(heading, 3)
        } else {
            here = $0 in ok
            name = "`" $1 "::" substr($0, length($1) + 2) "`"
        }
        found += here
        if (!here) { name = "**" name "**"; print "threats: missing or failed: " $0 > "/dev/stderr" }
        held = held (held == "" ? "" : "<br>") name
    }
    END {
        row()
        printf "\n%d of %d threats covered by %d tests that ran and passed.\n", good, threats, tests
        exit good != threats || threats == 0
    }' "$list" >"$table"
held=$?
tail -n 1 "$table"
exit "$held"
