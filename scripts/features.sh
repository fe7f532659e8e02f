#!/usr/bin/env bash
# Lints the library with each pair of features, and the tests with each feature alone. `make lint` lints the library
# without features, with each feature, with the default features and with all features.
set -euo pipefail
cd "$(dirname "$0")/.."
features=("$@")

for ((i = 0; i < ${#features[@]}; i++)); do
  for ((j = i + 1; j < ${#features[@]}; j++)); do
    pair=${features[i]},${features[j]}
    echo "library with $pair"
    cargo clippy --quiet --lib --no-default-features --features "$pair" -- -D warnings
  done
done
for feature in "${features[@]}"; do
  echo "tests with $feature alone"
  cargo clippy --quiet --tests --examples --no-default-features --features "$feature" -- -D warnings
done
