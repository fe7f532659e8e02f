#!/usr/bin/env bash
# Checks and publishes the three packages of a release: the crate `tollgate`, the command `tollgate-cli` and the browser
# package `tollgate-client`.
#
#   scripts/release.sh check [TAG]   fails if the versions of the packages, the changelog and the tag differ
#                                    (without a tag, the newest section may be unreleased)
#   scripts/release.sh dry-run       packages and builds everything that `publish` would upload
#   scripts/release.sh publish       uploads the packages; log in first, with `cargo login` and `npm login`
#
# A package that has been uploaded cannot be replaced. If `publish` fails, it can be repeated: it skips what is uploaded.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)

check() {
  local failed=0 found
  expect() {
    [[ $2 == "$version" ]] || { echo "$1: expected version $version, as in Cargo.toml, found ${2:-none}" >&2; failed=1; }
  }
  expect cli/Cargo.toml "$(sed -n 's/^version = "\(.*\)"/\1/p' cli/Cargo.toml | head -1)"
  expect "cli/Cargo.toml, dependency tollgate" \
    "$(sed -n 's/^tollgate = { path = "..", version = "\([^"]*\)".*/\1/p' cli/Cargo.toml | head -1)"
  expect client/package.json "$(sed -n 's/^  "version": "\(.*\)",/\1/p' client/package.json)"
  expect client/package-lock.json "$(sed -n 's/^  "version": "\(.*\)",/\1/p' client/package-lock.json)"
  found=$(grep -m1 '^## ' CHANGELOG.md)
  [[ $# == 0 && $found == '## [Unreleased]'* ]] || expect "CHANGELOG.md, the newest section, with a date" \
    "$(sed -n 's/^## \[\([0-9.]*\)\] - [0-9-]*$/\1/p' <<<"$found")"
  for found in "$@"; do expect "the tag $found" "${found#v}"; done
  [[ $failed == 0 ]] && echo "all packages have version $version"
  return "$failed"
}

# The command depends on a version of the crate that is not yet in the registry. Both packages are therefore copied into one
# workspace, for which cargo uses the new crate.
dry_run() {
  copy=$(mktemp -d) # not `local`, because the trap runs after the function has returned
  trap 'rm -rf "$copy"' EXIT
  git ls-files -z | tar --create --null --files-from=- | tar --extract --directory "$copy"
  sed -i '/^\[workspace\]$/d' "$copy/cli/Cargo.toml"
  rm "$copy/cli/Cargo.lock"
  printf '\n[workspace]\nmembers = ["cli"]\n' >>"$copy/Cargo.toml"
  (cd "$copy" && cargo publish --workspace --all-features --dry-run --allow-dirty)
  (cd client && npm ci --no-audit --no-fund --loglevel=error && npm publish --dry-run --access public)
}

publish() {
  # cargo waits until the registry lists the crate.
  published tollgate || cargo publish --locked
  published tollgate-cli || cargo publish --locked --manifest-path cli/Cargo.toml
  cd client
  npm ci --no-audit --no-fund --loglevel=error
  [[ $(npm view "tollgate-client@$version" version 2>/dev/null) == "$version" ]] || npm publish --access public
}

# Whether the registry has this version of a crate.
published() {
  cargo info --quiet --registry crates-io "$1@$version" >/dev/null 2>&1
}

case ${1:-} in
  check) check "${@:2}" ;;
  dry-run) check && dry_run ;;
  publish) check "v$version" && publish ;;
  *) echo "usage: scripts/release.sh check [TAG] | dry-run | publish" >&2; exit 2 ;;
esac
