#!/usr/bin/env bash
# Checks the types for authors of scripts against scripts as people write them, with the real compiler.
set -euo pipefail
cd "$(dirname "$0")/.."

version=7.0.2
home=target/typescript
if [ "$("$home/node_modules/.bin/tsc" --version 2>/dev/null || true)" != "Version $version" ]; then
    echo "setting up TypeScript $version in $home"
    mkdir -p "$home"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$home" "typescript@$version"
fi
"$home/node_modules/.bin/tsc" --project clients/typescript
echo "types for scripts: passed"
