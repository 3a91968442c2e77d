# The recipes that people and CI run. `scripts/test` installs what they need, then runs `just ci`.
# Measuring recipes print a table and write target/reports/<recipe>.json.

set shell := ["bash", "-euo", "pipefail", "-c"]

# list the recipes
default:
    @just --list

# everything that must pass before a change lands
ci: fmt-check lint test loom accept bench-decide

# formatting as rustfmt.toml says
fmt:
    cargo fmt --all

fmt-check:
    cargo fmt --all --check

# warnings are errors here, and only here
lint:
    cargo clippy --workspace --all-targets --profile process -- -D warnings

# every test, real processes included, in one optimised build
test *ARGS:
    cargo test --workspace --profile process {{ARGS}}

# the atomics of the decision path, under every interleaving that loom finds
loom:
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom cargo test -p sluicegate-client-core --profile process --lib loom_

# what a newcomer runs first, on the release build
accept:
    scripts/accept

# instructions and nanoseconds per decision, beside governor
bench-decide *ARGS:
    scripts/bench-decide {{ARGS}}

# licences, sources and duplicates of dependencies (needs cargo-deny)
deny:
    cargo deny check bans licenses sources
