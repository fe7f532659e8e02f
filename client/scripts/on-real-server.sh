#!/usr/bin/env bash
# Runs the browser tests against real servers: the crate's `status`, `status_ui` and `admin` examples.
set -euo pipefail
cd "$(dirname "$0")/../.."
cargo build --quiet --all-features --example status --example status_ui --example admin
target=$(cargo metadata --format-version 1 --no-deps | node -pe 'JSON.parse(require("fs").readFileSync(0)).target_directory')
folder=$(mktemp -d)
trap 'kill $(jobs -p); rm -rf "$folder"' EXIT

# Starts an example on a free port and sets `url` to its URL.
start() {
  PORT=0 "$target/debug/examples/$1" > "$folder/$1" &
  for _ in $(seq 100); do
    url=$(grep -o 'http://[0-9.:]*' "$folder/$1" | head -1) && return
    sleep 0.1
  done
  echo "the $1 example printed no URL within 10 s" >&2
  exit 1
}

start status
export TOLLGATE_URL=$url
start status_ui
export STATUS_UI_URL=$url
export ADMIN_TOKEN=the-token-of-the-test
start admin
export ADMIN_URL=$url
cd client
npm run test:browser
