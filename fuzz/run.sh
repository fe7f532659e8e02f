#!/usr/bin/env bash
# Runs fuzz targets (default: all) for a number of executions each (default: ten million), and prints a table:
#
#   fuzz/run.sh [executions] [target...]
#
# Needs cargo-fuzz. Fails on a crash or a hang (ten seconds for one input), with the input in fuzz/artifacts/. New inputs
# go to a separate directory, from which fuzz/keep.sh selects those for fuzz/corpus/. SANITIZER=none disables sanitizers.
set -euo pipefail
cd "$(dirname "$0")"
# Lets the stable compiler accept the flags for coverage and sanitizers.
export RUSTC_BOOTSTRAP=1
# Exports the crate's entry points for fuzzing.
export RUSTFLAGS="--cfg tollgate_fuzzing ${RUSTFLAGS:-}"
# The quarantine for freed memory is small, because its upkeep takes most of the time of a small input, and freed memory
# needs to be kept only for the duration of one input.
export ASAN_OPTIONS=quarantine_size_mb=4:malloc_context_size=0:${ASAN_OPTIONS:-}

executions=${1:-10000000}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cargo fuzz list --fuzz-dir .)
fi
sanitizer=${SANITIZER:-address}
work=${CARGO_TARGET_DIR:-target}/found
mkdir -p "$work"

cargo fuzz build --fuzz-dir . --sanitizer "$sanitizer"
echo "| target | executions | corpus | coverage edges | crashes | seconds | sanitizer |"
echo "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
crashed=0
for target in "${targets[@]}"; do
    runs=$executions
    length=512
    choices=()
    case $target in
        configuration) length=1024 choices=(-only_ascii=1) ;;
        durations) length=64 ;;
        headers) length=768 ;;
        keys | x_forwarded_for | forwarded | redis_server) length=256 ;;
        quotas) length=256 choices=(-only_ascii=1) ;;
    esac
    if [ -f "dictionaries/$target.dict" ]; then
        choices+=("-dict=dictionaries/$target.dict")
    fi
    mkdir -p "$work/$target" "corpus/$target"
    log=$work/$target.log
    began=$SECONDS
    outcome=0
    cargo fuzz run --fuzz-dir . --sanitizer "$sanitizer" "$target" "$work/$target" "corpus/$target" -- \
        -runs="$runs" -max_len="$length" -timeout=10 -detect_leaks=0 -print_final_stats=1 -close_fd_mask=1 \
        "${choices[@]}" >"$log" 2>&1 </dev/null || outcome=1
    if [ "$outcome" -ne 0 ]; then
        crashed=$((crashed + 1))
        grep -aE 'panicked|ERROR|SUMMARY|Test unit written' -A 3 "$log" | head -20 >&2
    fi
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
    edges=$(grep -ao 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)
    inputs=$(grep -ao 'corp: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)
    echo "| \`$target\` | ${executed:-?} | ${inputs:-?} | ${edges:-?} | $outcome | $((SECONDS - began)) | $sanitizer |"
done
exit $((crashed > 0))
