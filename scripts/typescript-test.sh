#!/usr/bin/env bash
# Checks and tests the TypeScript SDK, with the real programs, and the types for authors of scripts.
set -euo pipefail
cd "$(dirname "$0")/.."

export FORGECTL=${FORGECTL:-$PWD/target/debug/forgectl}
# `cargo test` builds the example, too.
[ -x "$(dirname "$FORGECTL")/examples/attach-door" ] || cargo build --locked --bins --examples

# The samples import the package by its name, as anybody's program does: it is built before they are checked.
scripts/setup-typescript.sh
cd clients/typescript
npx biome ci --log-level=warn .
npx tsc
npx tsc --project tests/scripts
npx vitest run --reporter=dot
echo "TypeScript: passed"
