#!/usr/bin/env bash
# Rebuilds the copy that the example `status_ui` embeds; with --check, fails if it is outdated.
set -euo pipefail
cd "$(dirname "$0")/.."
kept=../examples/status_ui/tollgate-client.js
made=$kept
if [[ ${1:-} == --check ]]; then
  made=$(mktemp --suffix=.js)
  trap 'rm -f "$made"' EXIT
fi
npx esbuild src/index.ts --bundle --format=esm --target=es2022 --log-level=warning \
  '--banner:js=// Made from client/; see main.rs.' --outfile="$made" --allow-overwrite
cmp "$made" "$kept" || { echo "$kept is outdated: run client/scripts/bundle.sh"; exit 1; }
