#!/usr/bin/env bash
# Sets up what the TypeScript SDK is built and tested with, if its lockfile changed, and builds the SDK.
set -euo pipefail
cd "$(dirname "$0")/../clients/typescript"

wanted=$(sha256sum package-lock.json | cut -d ' ' -f 1)
if [ "$(cat node_modules/.set-up-for 2>/dev/null || true)" != "$wanted" ]; then
    echo "setting up clients/typescript/node_modules"
    npm ci --loglevel=error --ignore-scripts
    echo "$wanted" > node_modules/.set-up-for
fi
npm run --silent build
