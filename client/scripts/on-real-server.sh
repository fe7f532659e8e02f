#!/usr/bin/env bash
# The browser test on a real server: the crate's example `status`.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --example status
server=$(cargo metadata --format-version 1 --no-deps | node -pe 'JSON.parse(require("fs").readFileSync(0)).target_directory')
said=$(mktemp)
PORT=0 "$server/debug/examples/status" > "$said" &
pid=$!
trap 'kill $pid; rm -f "$said"' EXIT
for _ in $(seq 100); do
  url=$(grep -o 'http://[0-9.:]*' "$said" | head -1) && break
  sleep 0.1
done
[[ -n ${url:-} ]] || { echo "the example says nowhere that it listens"; exit 1; }
cd client
TOLLGATE_URL=$url npm run test:browser
