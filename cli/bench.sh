#!/usr/bin/env bash
# Prints how long the command takes for a log of a million lines, on one core, next to `wc -l` and, if it is
# installed, goaccess.
set -euo pipefail
cd "$(dirname "$0")"
cargo build --quiet --release
target=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# 20,000 callers and 100 requests a second, with whole seconds, as nginx and Apache write them.
awk 'BEGIN {
  agent = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
  for (i = 0; i < 1000000; i++) {
    n = int(20000 * ((i * 0.6180339887) % 1) ^ 2); s = int(i / 100)
    printf "10.0.%d.%d - - [01/Jan/2026:%02d:%02d:%02d +0000] \"GET /items/%d HTTP/1.1\" 200 1234 \"-\" \"%s\"\n",
      n / 256, n % 256, s / 3600, s / 60 % 60, s % 60, i % 1000, agent
  }
}' > "$log"
core() { if command -v taskset > /dev/null; then taskset -c 0 "$@"; else "$@"; fi; }
measure() {
  local name=$1 best=; shift
  for _ in 1 2 3; do
    local start end
    start=$(date +%s%N); core "$@" > /dev/null 2>&1; end=$(date +%s%N)
    if [ -z "$best" ] || [ $((end - start)) -lt "$best" ]; then best=$((end - start)); fi
  done
  awk -v name="$name" -v ns="$best" 'BEGIN { printf "%-45s %7.3f s  %5.2f million lines/s\n", name, ns / 1e9, 1e9 / ns }'
}
measure "wc -l" wc -l "$log"
if command -v goaccess > /dev/null; then measure goaccess goaccess "$log" --log-format=COMBINED -o csv; fi
measure "tollgate simulate, one quota" "$target/release/tollgate" simulate "$log" --quota '100/min burst 20'
measure "tollgate simulate, three quotas" "$target/release/tollgate" simulate "$log" --quota '10/min' --quota '100/min burst 20' --quota '1000/h'
