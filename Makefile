# Everything there is to run. `make test` is what continuous integration runs, whole and alone.

SHELL := /bin/bash
.DEFAULT_GOAL := test

# Each feature by itself, none, the default and all: a feature only adds.
FEATURES := axum wait redis redis-tls serde tonic uuid tracing metrics conformance

.PHONY: test tools fmt lint docs unit features client client-tools bench bench-redis mutants coverage

test: tools fmt lint features docs unit client

# What a machine with Rust may lack.
tools:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust, https://rustup.rs"; exit 1; }
	@cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
	@cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
	@command -v redis-server >/dev/null || { apt-get update && apt-get install -y --no-install-recommends redis-server; }
	@command -v openssl >/dev/null || { apt-get update && apt-get install -y --no-install-recommends openssl; }
	@command -v cc >/dev/null || { apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev; }

fmt:
	cargo fmt --all --check
	cargo fmt --manifest-path benches/peers/Cargo.toml --check

lint:
	cargo clippy --all-targets --all-features -- -D warnings
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
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps --no-default-features

# With all features; then what is there without any.
unit:
	cargo test --all-features
	cargo test --no-default-features --lib --test vectors

# The browser package: its arithmetic beside the crate's, and a page in a real browser on a real server.
client: client-tools
	cd client && npm ci --no-audit --no-fund --loglevel=error
	cd client && export CARGO_TARGET_DIR="$${CARGO_TARGET_DIR:-$(CURDIR)/target}" && npm test
	cd client && npm run size
	client/scripts/bundle.sh --check
	client/scripts/on-real-server.sh

# Debian's own node is too old for the tools; npm has newer ones.
client-tools:
	@command -v npm >/dev/null || { apt-get update && apt-get install -y --no-install-recommends nodejs npm; }
	@node -e 'process.exit(+(parseInt(process.versions.node) < 20))' || npm install --global node@22
	@command -v chromium >/dev/null || { apt-get update && apt-get install -y --no-install-recommends chromium; }

# Beside other crates, in one run: prints a table of ratios.
bench:
	cargo run --release --manifest-path benches/peers/Cargo.toml --no-default-features --bin decision
	cargo run --release --manifest-path benches/peers/Cargo.toml --no-default-features --bin deny

# On a redis-server of its own, beside other crates' backends; one of them asks for a newer Rust than it needs.
bench-redis:
	cargo run --release --ignore-rust-version --manifest-path benches/peers/Cargo.toml \
		--features tower-rate-limiter --bin redis

# Breaks the code on purpose, in some 870 places, to see that a test notices. Half an hour on two quiet cores.
mutants:
	@cargo mutants --version >/dev/null 2>&1 || cargo install cargo-mutants --locked
	tests/mutants/run.sh

# Which lines the tests run, by room.
coverage:
	@cargo llvm-cov --version >/dev/null 2>&1 || cargo install cargo-llvm-cov --locked
	tests/coverage.sh
