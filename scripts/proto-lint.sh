#!/usr/bin/env bash
# Lints the protocol with buf, and compares it with the one of the last release.
set -euo pipefail
cd "$(dirname "$0")/.."

version=1.75.0
home=target/buf
buf=$home/node_modules/@bufbuild/buf-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m | sed 's/x86_64/x64/')/bin/buf
if [ "$("$buf" --version 2>/dev/null || true)" != "$version" ]; then
    echo "setting up buf $version in $home"
    mkdir -p "$home"
    # The program is in a platform package of its own; the script that npm would run after installing is not needed.
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$home" "@bufbuild/buf@$version"
fi
"$buf" lint
"$buf" format --diff --exit-code
if [ -f proto/released.binpb ]; then
    "$buf" breaking --against proto/released.binpb
else
    echo "buf breaking: skipped, there is no proto/released.binpb before the first release"
fi
echo "protocol: lint passed"
