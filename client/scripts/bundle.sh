#!/usr/bin/env bash
# Rebuilds the bundle that the `status_ui` example embeds. With --check, fails if the bundle is outdated.
set -euo pipefail
cd "$(dirname "$0")/.."
bundle=../examples/status_ui/tollgate-client.js
output=$bundle
if [[ ${1:-} == --check ]]; then
  output=$(mktemp --suffix=.js)
  trap 'rm -f "$output"' EXIT
fi
npx esbuild src/index.ts --bundle --format=esm --target=es2022 --log-level=warning \
  '--banner:js=// Made from client/; see main.rs.' --outfile="$output" --allow-overwrite
cmp "$output" "$bundle" || { echo "$bundle is outdated: run client/scripts/bundle.sh"; exit 1; }
