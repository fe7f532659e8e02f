#!/usr/bin/env bash
# Runs fuzz targets for so many executions each (ten million unless said; all targets unless named), and writes what
# came of it to fuzz/RESULTS.md:
#
#   fuzz/run.sh [executions] [target...]
#
# Needs cargo-fuzz. Fails on a crash or a hang (ten seconds over one input); the input is in fuzz/artifacts/.
# What a run finds goes to a folder of its own; the kept corpus in fuzz/corpus/ is read only. See CONTRIBUTING.md.
set -euo pipefail
cd "$(dirname "$0")"
# Coverage and sanitizers are flags of the compiler that stable refuses otherwise.
export RUSTC_BOOTSTRAP=1
# What is freed need not be kept long: no input is. It is most of the time that a small one takes.
export ASAN_OPTIONS=quarantine_size_mb=4:malloc_context_size=0:${ASAN_OPTIONS:-}

executions=${1:-10000000}
shift || true
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    mapfile -t targets < <(cargo fuzz list --fuzz-dir .)
fi
sanitizer=${SANITIZER:-address}
work=${CARGO_TARGET_DIR:-target}/found
# Each execution opens a connection: a few hundred a second are what the system gives.
most_connections=${CONNECTIONS:-100000}

cargo fuzz build --fuzz-dir . --sanitizer "$sanitizer"

rows=()
crashed=0
for target in "${targets[@]}"; do
    runs=$executions
    length=512
    choices=()
    case $target in
        configuration) length=1024 choices=(-only_ascii=1) ;;
        durations) length=64 ;;
        headers) length=768 ;;
        quotas) length=256 choices=(-only_ascii=1) ;;
        redis_server) length=256; runs=$((executions < most_connections ? executions : most_connections)) ;;
    esac
    if [ -f "dictionaries/$target.dict" ]; then
        choices+=("-dict=dictionaries/$target.dict")
    fi
    mkdir -p "$work/$target" "corpus/$target"
    log=$work/$target.log
    began=$SECONDS
    outcome=0
    cargo fuzz run --fuzz-dir . --sanitizer "$sanitizer" "$target" "$work/$target" "corpus/$target" -- \
        -runs="$runs" -max_len="$length" -timeout=10 -detect_leaks=0 -print_final_stats=1 -close_fd_mask=1 "${choices[@]}" \
        >"$log" 2>&1 </dev/null || outcome=1
    if [ "$outcome" -ne 0 ]; then
        crashed=$((crashed + 1))
        grep -E 'panicked|ERROR|SUMMARY|Test unit written' -A 3 "$log" | head -20 >&2
    fi
    executed=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -1)
    edges=$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)
    inputs=$(grep -o 'corp: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)
    note=
    if [ "$runs" -ne "$executions" ]; then
        note=" (of $executions: each is a connection)"
    fi
    rows+=("| \`$target\` | ${executed:-?}$note | ${inputs:-?} | ${edges:-?} | $outcome | $((SECONDS - began)) |")
    echo "${rows[-1]}"
done

{
    echo "# What fuzzing found"
    echo
    echo "Written by \`fuzz/run.sh $executions${*:+ $*}\`, under the $sanitizer sanitizer, with overflow checks on. Of each"
    echo "target: executions, inputs that reach something of their own, edges of the code that were reached."
    echo
    echo "| target | executions | corpus | coverage edges | crashes | seconds |"
    echo "| --- | ---: | ---: | ---: | ---: | ---: |"
    printf '%s\n' "${rows[@]}"
} | tee RESULTS.md
exit $((crashed > 0))
