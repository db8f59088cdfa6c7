#!/usr/bin/env bash
# Sets up target/aimock, a server from npm that answers like the APIs of models, for the tests of endpoints that speak these.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.43.0
home=target/aimock
package=$home/node_modules/@copilotkit/aimock
if [ "$(node -p "require('./$package/package.json').version" 2>/dev/null || true)" != "$version" ]; then
    echo "setting up aimock $version in $home"
    mkdir -p "$home"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$home" "@copilotkit/aimock@$version"
fi
