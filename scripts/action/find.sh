#!/usr/bin/env bash
# A step of the action: finds forgectl, and says whether it has to be built.
set -euo pipefail

if [ -n "${FORGE_FORGECTL:-}" ]; then
    [ -x "$FORGE_FORGECTL" ] || { echo "::error title=Forge::the input forgectl names no program that can be run"; exit 2; }
    dirname "$(realpath "$FORGE_FORGECTL")" >> "$GITHUB_PATH"
    echo "found=true" >> "$GITHUB_OUTPUT"
elif command -v forgectl > /dev/null; then
    echo "found=true" >> "$GITHUB_OUTPUT"
else
    echo "found=false" >> "$GITHUB_OUTPUT"
    echo "home=$HOME/.cache/forge" >> "$GITHUB_OUTPUT"
    # The action stands outside of the workspace, where GitHub's own hashFiles finds nothing.
    cd "$GITHUB_ACTION_PATH"
    hash=$(find Cargo.toml Cargo.lock build.rs proto src -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
    echo "hash=${hash%% *}" >> "$GITHUB_OUTPUT"
fi
