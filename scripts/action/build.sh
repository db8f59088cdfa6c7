#!/usr/bin/env bash
# A step of the action: builds forgectl from the version of the action, unless the cache holds it.
set -euo pipefail

if [ ! -x "$FORGE_HOME/bin/forgectl" ]; then
    cargo install --locked --path "$GITHUB_ACTION_PATH" --bin forgectl --root "$FORGE_HOME"
fi
echo "$FORGE_HOME/bin" >> "$GITHUB_PATH"
