#!/usr/bin/env bash
# Fails if the public API has changed more than the version since the last release says: before 1.0, a patch version must not
# break anything. The last release is the newest tag such as v0.2.0.
set -euo pipefail
cd "$(dirname "$0")/.."
git config --global --add safe.directory "$PWD"
tag=$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2>/dev/null) || { echo "no release yet"; exit 0; }
command -v cargo-semver-checks >/dev/null || cargo install --locked cargo-semver-checks
cargo semver-checks --baseline-rev "$tag" --all-features
