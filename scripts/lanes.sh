#!/usr/bin/env bash
# Runs targets of the Makefile in lanes: the lanes at the same time, the targets of a lane one after the other. It is faster
# than one lane, because most targets use several cores only for a part of their time. Prints the output of each target when
# it has ended, and finally the seconds of each.
#
#   scripts/lanes.sh 'fmt lint' 'unit client'
set -uo pipefail
set -m # makes each lane a process group, which can be stopped as a whole
cd "$(dirname "$0")/.."
work=$(mktemp -d)
lanes=()
trap 'for lane in "${lanes[@]}"; do kill -- "-$lane" 2>/dev/null; done; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

run() {
  local target began code
  for target in $1; do
    began=$SECONDS code=0
    echo "make $target: running"
    "${MAKE:-make}" --no-print-directory "$target" >"$work/$target" 2>&1 </dev/null || code=$?
    (
      flock 9 # prints one output at a time
      echo "make $target"
      cat "$work/$target"
      printf '%6d s  %s\n' $((SECONDS - began)) "$target" | tee -a "$work/times"
    ) 9>"$work/lock"
    [[ $code == 0 ]] || { echo "make $target: failed"; return 1; }
  done
}

for targets in "$@"; do
  run "$targets" &
  lanes+=($!)
done
for targets in "$@"; do
  wait -n || exit 1
done
echo
cat "$work/times"
printf '%6d s  in total\n' $SECONDS
