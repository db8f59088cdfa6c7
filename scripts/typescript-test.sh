#!/usr/bin/env bash
# Checks and tests the TypeScript SDK, with the real programs, and the types for authors of scripts.
set -euo pipefail
cd "$(dirname "$0")/.."

export FORGECTL=${FORGECTL:-$PWD/target/debug/forgectl}
# `cargo test` builds the example, too.
[ -x "$(dirname "$FORGECTL")/examples/attach-door" ] || cargo build --locked --bins --examples

cd clients/typescript
wanted=$(sha256sum package-lock.json | cut -d ' ' -f 1)
if [ "$(cat node_modules/.set-up-for 2>/dev/null || true)" != "$wanted" ]; then
    echo "setting up clients/typescript/node_modules"
    npm ci --loglevel=error --ignore-scripts
    echo "$wanted" > node_modules/.set-up-for
fi
npx biome ci --log-level=warn .
# The samples import the package by its name, as anybody's program does: it is built before they are checked.
npm run --silent build
npx tsc
npx tsc --project tests/scripts
npx vitest run --reporter=dot
echo "TypeScript: passed"
