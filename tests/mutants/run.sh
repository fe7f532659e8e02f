#!/usr/bin/env bash
# Mutation testing: changes one expression at a time in the modules below. For each change, a test must fail.
# `make mutants` runs all groups and prints a table. `tests/mutants/run.sh GROUP..` runs some groups, and
# `tests/mutants/run.sh table` prints the table from the last run of each group.
#
# Each mutant needs a build. Building the whole crate with its test targets takes minutes, so each group is built as a
# small crate with only the modules that it needs, which takes seconds. The mutants that survive the tests of the small
# crate are retried on the whole crate. `.cargo/mutants.toml` lists the equivalent mutants, with reasons.
set -euof pipefail
repo="$(cd "$(dirname "$0")/../.." && pwd)"
work="${CARGO_TARGET_DIR:-$repo/target}/mutants"
config="$repo/.cargo/mutants.toml"
groups=(algebra keys headers clients)

# The files of a group.
files() {
    case "$1" in
        algebra) echo "src/algorithm/**" ;;
        keys) echo "src/policy/{key,digest,placement,name,duration,quota}.rs" ;;
        headers) echo "src/middleware/{headers,items,refusal}.rs" ;;
        clients) echo "src/middleware/key/{client_ip,forwarded,request,combine}.rs" ;;
        *) echo "unknown group $1; groups: ${groups[*]}" >&2; exit 2 ;;
    esac
}

# The tests of the small crate, fastest first. Each round tries only the mutants that survived the previous round.
small() {
    case "$1" in
        algebra) printf '%s\n' "--lib" "--test=laws" ;;
        *) echo "--lib" ;;
    esac
}

# The filter for the small crate's tests. It skips the tests that try all short histories, which take too long.
which_tests() {
    case "$1" in
        algebra) echo "--skip exhaustive --skip million --skip interleaving --skip no_short_history --skip each_mistake" ;;
        keys) echo "policy::" ;;
        headers | clients) echo "middleware::" ;;
    esac
}

# The test targets in the whole crate that cover the group, and the filter for them. They are run on the mutants that
# survived. `tests::` selects the unit tests, and `allocates` all tests in `tests/allocations.rs`.
whole() {
    case "$1" in
        algebra) echo "--test=it --test=laws -- windows:: status:: errors:: settlement:: vectors::" ;;
        keys) echo "--lib --test=it -- tests:: errors:: config:: threats::" ;;
        headers) echo "--test=it --test=allocations -- families:: http:: threats:: routes:: shards:: tower_contract:: allocates" ;;
        clients) echo "--test=it -- sockets:: protection:: routes:: config::" ;;
    esac
}

# Creates a crate with the modules that the group needs.
prepare_small() {
    local group="$1" crate="$2"
    rm -rf "$crate/src" "$crate/tests"
    mkdir -p "$crate/src/middleware" "$crate/tests"
    cp "$repo/Cargo.lock" "$crate/"
    cp -r "$repo/src/algorithm" "$crate/src/"
    {
        echo '#![allow(dead_code, unreachable_pub, unused_imports)]'
        echo 'pub mod algorithm;'
        echo 'pub use algorithm::{DAY, HOUR, MINUTE, Quota, QuotaError, SECOND, WEEK};'
    } > "$crate/src/lib.rs"
    if [ "$group" = algebra ]; then
        mkdir "$crate/tests/support"
        cp -r "$repo/tests/laws/properties" "$crate/tests/"
        cp "$repo/tests/support/"{admitted,generators,model,random}.rs "$crate/tests/support/"
        {
            echo '#![allow(dead_code)]'
            echo 'mod properties;'
            echo 'mod support {'
            printf '    pub(crate) mod %s;\n' admitted generators model random
            echo '}'
        } > "$crate/tests/laws.rs"
    else
        cp -r "$repo/src/policy" "$crate/src/"
        printf 'pub mod policy;\npub use policy::*;\n' >> "$crate/src/lib.rs"
    fi
    if [ "$group" = headers ] || [ "$group" = clients ]; then
        cp -r "$repo/src/middleware/"{headers.rs,items.rs,key} "$crate/src/middleware/"
        echo 'pub mod middleware;' >> "$crate/src/lib.rs"
        printf 'pub mod headers;\npub mod items;\npub mod key;\npub use key::KeyExtractor;\n' \
            > "$crate/src/middleware/mod.rs"
    fi
    # The lock file determines the versions. Dependencies are optimized more, because they are built only once.
    cat > "$crate/Cargo.toml" <<'TOML'
[package]
name = "tollgate"
version = "0.1.0"
edition = "2024"
[workspace]
[features]
default = ["redis", "uuid"]
redis = []
serde = []
uuid = ["dep:uuid"]
axum = []
tonic = []
[dependencies]
bytes = "1.7"
http = "1.1"
ipnet = { version = "2.12.2", default-features = false }
itoa = "1.0.5"
percent-encoding = { version = "2.3", default-features = false, features = ["alloc"] }
siphasher = "1"
smallvec = { version = "1.13", features = ["const_generics", "const_new"] }
uuid = { version = "1", default-features = false, optional = true }
[dev-dependencies]
proptest = { version = "1.5", default-features = false, features = ["std"] }
serde = { version = "1.0.200", features = ["derive"] }
serde_json = "1"
sfv = "0.14"
[profile.dev]
opt-level = 1
debug = false
[profile.dev.package."*"]
opt-level = 2
TOML
}

prepare_whole() {
    rm -rf "$1/src" "$1/tests"
    mkdir -p "$1"
    # `--touch` sets new modification times. With the original times, cargo would reuse the last mutant's build.
    (cd "$repo" && git ls-files -z | tar --create --null --files-from=-) | tar --extract --touch --directory "$1"
}

# Runs one round, without the mutants that earlier rounds caught.
mutate() {
    local group="$1" crate="$2" tests="$3"; shift 3
    local -a which=()
    for pattern in $(files "$group"); do which+=(--file "$pattern"); done
    for test in $tests; do which+=(--cargo-arg="$test"); done
    # Each crate has its own target directory: the crates have the same name, so cargo would otherwise mix up their builds.
    # Exit codes 2 (missed mutants) and 3 (timeouts) are results, not failures.
    (cd "$crate" && RUST_BACKTRACE=0 CARGO_TARGET_DIR="$crate/target" PROPTEST_CASES="${cases:-300}" cargo mutants --in-place --iterate \
        --output "$work/$group" --config "$config" --no-shuffle --colors never --annotations none \
        --minimum-test-timeout 30 --build-timeout 600 "${which[@]}" "$@") || [ $? -le 3 ]
    for answer in caught unviable timeout; do
        cat "$work/$group/mutants.out/$answer.txt" >> "$work/$group/$answer"
    done
}

run() {
    local group="$1" crate="$work/small-$1" tree="$work/whole"
    rm -rf "${work:?}/$group"
    mkdir -p "$work/$group"
    prepare_small "$group" "$crate"
    while read -r tests; do
        mutate "$group" "$crate" "$tests" -- -- $(which_tests "$group")
    done < <(small "$group")
    # The small crate for `headers` omits one module, whose mutants have therefore not been tried yet.
    if [ "$group" = headers ] || [ -s "$work/$group/mutants.out/missed.txt" ]; then
        prepare_whole "$tree"
        # The quickstart tests run an example, which is not built here. Tests with random histories are slow.
        local tests; tests="$(whole "$group")"
        cases=100 mutate "$group" "$tree" "${tests% -- *}" --all-features \
            --cargo-arg=--config=profile.dev.package.tollgate.opt-level=0 -- -- ${tests#* -- } --skip quickstart --skip histories
    fi
}

# Prints the table, with one row per module.
results() {
    cd "$repo"
    echo "# Mutants"
    echo
    echo "$(date -u +%F), commit $(git rev-parse --short HEAD), $(cargo mutants --version)"
    echo
    echo "Unviable: the mutant does not compile. Timed out: a test did not finish, which counts as caught. Equivalent: the mutant"
    echo "behaves like the original; \`.cargo/mutants.toml\` gives the reason for each. Survived: no test failed."
    echo
    echo "| module | mutants | caught | unviable | timed out | equivalent | survived |"
    echo "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for group in "${groups[@]}"; do
        local -a which=()
        for pattern in $(files "$group"); do which+=(--file "$pattern"); done
        cargo mutants --list --colors never --no-config "${which[@]}" \
            | sort > "$work/$group/all"
        cargo mutants --list --colors never --config "$config" "${which[@]}" \
            | sort > "$work/$group/tried"
        # A mutant that timed out in an early round may have been caught in a later round.
        comm -23 <(sort -u "$work/$group/timeout") <(sort -u "$work/$group/caught") > "$work/$group/timed_out"
        for module in $(cut -d: -f1 "$work/$group/all" | sort -u); do
            echo "| \`${module#src/}\` | $(of all) | $(of caught) | $(of unviable) | $(of timed_out)" \
                "| $(($(of all) - $(of tried))) | $(($(of tried) - $(of caught unviable timed_out))) |"
        done
    done
}

# The awk program that adds the line with the totals.
total='{ print } /^. `/ { for (i = 3; i <= 8; i++) sum[i] += $i }
    END { printf "| all |"; for (i = 3; i <= 8; i++) printf " %d |", sum[i]; print "" }'

# Prints how many of the module's mutants are in the given lists.
of() {
    (cd "$work/$group" && cat "$@") | sort -u | grep -c "^$module:" || true
}

[ "$*" = table ] || for group in "${@:-${groups[@]}}"; do run "$group"; done
if [ $# -eq 0 ] || [ "$*" = table ]; then
    results | awk -F "|" "$total"
fi
