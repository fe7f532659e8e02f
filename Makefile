# All commands of the project. Continuous integration runs exactly `make test`.

SHELL := /bin/bash
.DEFAULT_GOAL := test

# Linted one by one, besides none, the default and all: features only add.
FEATURES := axum wait redis redis-tls serde tonic uuid tracing metrics conformance

.PHONY: test tools fmt lint docs unit valkey servers features client client-tools node bench bench-redis instructions
.PHONY: instructions-check attack threats
.PHONY: supply supply-tools advisories public-api
.PHONY: fuzz replay
.PHONY: migrating theirs
.PHONY: models models-weakened
.PHONY: mutants coverage

test: tools fmt lint features docs theirs unit valkey client

# Installs what a machine with Rust may lack.
tools:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust, https://rustup.rs"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
	@command -v redis-server >/dev/null || { apt-get update && apt-get install -y --no-install-recommends redis-server; }
	@command -v pip3 >/dev/null || { apt-get update && apt-get install -y --no-install-recommends python3-pip; }
	@command -v openssl >/dev/null || { apt-get update && apt-get install -y --no-install-recommends openssl; }
	@command -v cc >/dev/null || { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev; }

fmt:
	cargo fmt --all --check
	cargo fmt --manifest-path benches/peers/Cargo.toml --check
	cargo fmt --manifest-path proof/Cargo.toml --check
	cargo fmt --manifest-path benches/instructions/Cargo.toml --check
	cargo fmt --manifest-path benches/attack/Cargo.toml --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo fmt --manifest-path migrating/Cargo.toml --check

lint:
	cargo clippy --all-targets --all-features -- -D warnings
	cargo rustc --quiet --profile check --lib --all-features -- --cfg tollgate_fuzzing -D warnings # as fuzz/ builds it
	cargo clippy --no-default-features -- -D warnings
	cargo clippy -- -D warnings
	@set -e; for feature in $(FEATURES); do \
		echo "cargo clippy --no-default-features --features $$feature"; \
		cargo clippy --quiet --no-default-features --features $$feature -- -D warnings; \
	done

# Without features, axum, redis and tokio are not in the dependency tree.
features:
	@if cargo tree --no-default-features --edges normal --prefix none | grep -E '^(axum|redis|tokio|hyper|tower) '; then \
		echo "the crate without features must not depend on the above"; exit 1; \
	fi

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
	scripts/links.py "$${CARGO_TARGET_DIR:-target}/doc/tollgate"
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --no-default-features

# With all features. `make supply` tests without any, which rebuilds nearly everything; here client/differential covers it.
unit:
	cargo test --all-features

# The Redis backend's tests on Valkey, which comes from the Python package index.
valkey:
	tests/redis/servers.sh valkey

# The same on every supported server: Redis 7.0 (Debian's), Valkey 9.1, Redis 6.2.
servers: tools
	tests/redis/servers.sh redis valkey redis-6.2

# The browser package: its arithmetic against the crate's, and a page in a real browser against a real server.
client: client-tools
	cd client && npm ci --no-audit --no-fund --loglevel=error
	cd client && export CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-$(CURDIR)/target}" && npm test
	cd client && npm run size
	client/scripts/bundle.sh --check
	client/scripts/on-real-server.sh

client-tools: node
	@command -v chromium >/dev/null || { apt-get update && apt-get install -y --no-install-recommends chromium; }

# Debian's node is too old for the tools; npm installs a newer one.
node:
	@command -v npm >/dev/null || { apt-get update && apt-get install -y --no-install-recommends nodejs npm; }
	@node -e 'process.exit(+(parseInt(process.versions.node) < 20))' || npm install --global node@22

# The concurrent code under loom, in every interleaving: see proof/README.md.
models:
	cargo test --manifest-path proof/Cargo.toml --lib -- models:: --nocapture

# Checks that each model fails when its code is weakened: an hour on two cores, most of it compiling.
models-weakened:
	proof/weaken.sh

# Benchmarks beside other crates; writes benches/peers/RESULTS.md and the plots. About twenty minutes, or
# TABLES="layer http" for only these. --ignore-rust-version: one crate declares a newer Rust than it needs.
TABLES ?= all
PEERS := --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml --features tower-rate-limiter

bench:
	cargo run $(PEERS) --bin bench -- $(TABLES)

# Instruction counts of the paths that every request takes; writes benches/instructions.md.
instructions:
	benches/instructions/measure.sh

# Fails if one has grown by more than 3 %.
instructions-check:
	benches/instructions/measure.sh --check

# Redis backends beside each other, on a redis-server that it starts.
bench-redis:
	cargo run $(PEERS) --bin redis

# Honest and hostile clients on one server for SECONDS; fails if a promise is broken. Its latencies are meaningful only on
# an idle machine.
attack: SECONDS = 600
attack:
	cargo run --release --manifest-path benches/attack/Cargo.toml -- run --seconds $(SECONDS)

# Runs the tests of tests/threats/list.txt and writes THREATS.md.
threats: tools node
	tests/threats/table.sh

# The supply chain: licenses, sources and oldest versions of the dependencies, features in pairs, the public API, and the
# package as it would be published. `make test` has tests/msrv.rs.
supply: supply-tools
	cargo deny --locked check bans licenses sources
	scripts/public-api.sh
	scripts/minimal-versions.sh
	scripts/features.sh $(FEATURES)
	cargo test --no-default-features --lib --test vectors
	cargo package --locked --allow-dirty --all-features

# cargo-public-api reads the JSON of one Rust version only; keep it in step with scripts/public-api.sh.
supply-tools:
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny@0.20.2
	@command -v cargo-public-api >/dev/null || cargo install --locked cargo-public-api@0.52.0

# Known vulnerabilities of the dependencies; downloads a database.
advisories: supply-tools
	cargo deny --locked check advisories

# Rewrites tests/public-api.txt; read the diff.
public-api: supply-tools
	scripts/public-api.sh --write

# Ten million executions of each fuzz target: several hours. `fuzz/run.sh 100000 quotas` runs fewer, of one target.
fuzz:
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	@command -v c++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends g++; }
	fuzz/run.sh

# Replays the inputs that fuzzing kept, without libFuzzer.
replay:
	RUSTFLAGS="$$RUSTFLAGS --cfg tollgate_fuzzing" cargo test --manifest-path fuzz/Cargo.toml --no-default-features

THEIRS := --ignore-rust-version --manifest-path migrating/Cargo.toml

# Compiles the other crates' code that src/docs/migrating shows; tests/migrating.rs compares the two.
theirs: node
	cd migrating/typescript && npm ci --no-audit --no-fund --loglevel=error && npx tsc --noEmit
	CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-$(CURDIR)/target}" cargo check --quiet --all-targets $(THEIRS)

# Runs it beside ours, the TypeScript code too, some of it against a redis-server that it starts.
migrating: tools node
	cargo test $(THEIRS)
	cd migrating/typescript && npm ci --no-audit --no-fund --loglevel=error && npm test

# Breaks the code in about 870 places; some test must fail for each. Half an hour on two idle cores.
mutants:
	@cargo mutants --version >/dev/null 2>&1 || cargo install cargo-mutants --locked
	tests/mutants/run.sh

# Line coverage, by module.
coverage:
	@cargo llvm-cov --version >/dev/null 2>&1 || cargo install cargo-llvm-cov --locked
	tests/coverage.sh
