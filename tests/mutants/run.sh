#!/usr/bin/env bash
# Mutation testing: each expression of the modules below is broken on purpose, one at a time, and some test must fail.
# `make mutants` runs it all and writes `tests/mutants/results.md`; `tests/mutants/run.sh GROUP` runs one group.
#
# A mutant costs a build, so each group is built as a crate of only the rooms that it needs: seconds to build, where the
# whole crate with its test targets takes minutes. That this can be done is what the order of the rooms is for. What no
# test of the small crate catches is tried again on the whole one. Mutants that change nothing anybody could see are
# named in `.cargo/mutants.toml`, each with the reason.
set -euof pipefail
repo="$(cd "$(dirname "$0")/../.." && pwd)"
work="${CARGO_TARGET_DIR:-$repo/target}/mutants"
groups=(algebra keys headers clients)

# What is broken, by group.
files() {
    case "$1" in
        algebra) echo "src/algorithm/**" ;;
        keys) echo "src/policy/{key,name,duration,quota}.rs" ;;
        headers) echo "src/middleware/headers.rs src/middleware/refusal.rs" ;;
        clients) echo "src/middleware/key/{client_ip,forwarded,request,combine}.rs" ;;
        *) echo "no group $1: ${groups[*]}" >&2; exit 2 ;;
    esac
}

# The tests of the small crate, quick ones first: what they catch, the next round need not look at.
rounds() {
    case "$1" in
        algebra) printf '%s\n' "--lib --test=vectors" "--test=properties" ;;
        *) echo "--lib" ;;
    esac
}

# Which of these tests. The exhaustive one takes longer than all others together.
which_tests() {
    case "$1" in
        algebra) echo "--skip exhaustive" ;;
        keys) echo "policy::" ;;
        headers | clients) echo "middleware::" ;;
    esac
}

# The test targets of the whole crate that look at the group, for what survived.
whole() {
    case "$1" in
        algebra) echo "--lib --test=vectors --test=properties --test=settlement --test=status" ;;
        keys) echo "--lib --test=threats --test=config" ;;
        headers) echo "--lib --test=families --test=http --test=threats --test=tower_contract" ;;
        clients) echo "--lib --test=http --test=threats --test=sockets" ;;
    esac
}

# A crate of the rooms that the group needs.
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
        cp -r "$repo"/tests/{vectors,vectors.rs,properties,properties.rs,model} "$crate/tests/"
    else
        cp -r "$repo/src/policy" "$crate/src/"
        printf 'pub mod policy;\npub use policy::*;\n' >> "$crate/src/lib.rs"
    fi
    if [ "$group" = headers ] || [ "$group" = clients ]; then
        cp -r "$repo"/src/middleware/{headers.rs,key} "$crate/src/middleware/"
        echo 'pub mod middleware;' >> "$crate/src/lib.rs"
        printf 'pub mod headers;\npub mod key;\npub use key::{KeyError, KeyExtractor};\n' > "$crate/src/middleware/mod.rs"
    fi
    # Versions as in the lock file. Unoptimised but for what the tests spend their time in.
    cat > "$crate/Cargo.toml" <<'TOML'
[package]
name = "tollgate"
version = "0.1.0"
edition = "2024"
[workspace]
[features]
default = ["redis"]
redis = []
serde = []
uuid = ["dep:uuid"]
axum = []
tonic = []
[dependencies]
bytes = "1.7"
http = "1.1"
ipnet = { version = "2.12.2", default-features = false }
siphasher = "1"
smallvec = { version = "1.13", features = ["const_generics"] }
uuid = { version = "1", default-features = false, optional = true }
[dev-dependencies]
proptest = { version = "1.5", default-features = false, features = ["std"] }
serde = { version = "1.0.200", features = ["derive"] }
serde_json = "1"
sfv = "0.14"
[profile.dev]
opt-level = 0
debug = false
[profile.dev.package."*"]
opt-level = 2
TOML
}

mutate() {
    local group="$1" crate="$2"; shift 2
    local -a which=()
    for pattern in $(files "$group"); do which+=(--file "$pattern"); done
    # Survivors are an answer here, not a failure: 0 = all caught, 2 = some missed, 3 = some timed out.
    (cd "$crate" && cargo mutants --in-place --iterate --output "$work/$group" --config "$repo/.cargo/mutants.toml" \
        --no-shuffle --colors never --annotations none --build-timeout 300 "${which[@]}" "$@") || [ $? -le 3 ]
}

run() {
    local group="$1" crate="$work/rooms-$1" tree="$work/whole"
    mkdir -p "$work/$group"
    prepare_small "$group" "$crate"
    while read -r round; do
        local -a tests=()
        for test in $round; do tests+=(--cargo-arg="$test"); done
        # Each crate has a target directory of its own: they have the same name, and cargo would take one for the other.
        CARGO_TARGET_DIR="$crate/target" PROPTEST_CASES=300 \
            mutate "$group" "$crate" --minimum-test-timeout 20 "${tests[@]}" -- -- $(which_tests "$group")
    done < <(rounds "$group")
}

for group in "${@:-${groups[@]}}"; do run "$group"; done
