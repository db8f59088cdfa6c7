#!/usr/bin/env bash
# Sets up virtual environments for the Python client, and does nothing when they are there and their files did not change:
#   target/python       the client, the sample agents and their tests, with every framework at once
#   target/python-otel  the newest OpenTelemetry: Google's ADK, in the other one, holds it back
set -euo pipefail
cd "$(dirname "$0")/.."

# set_up VENV LOCK
set_up() {
    local venv=$1 lock=$2 wanted
    wanted=$(cat "$lock" clients/python/pyproject.toml scripts/setup-python.sh | sha256sum | cut -d ' ' -f 1)
    if [ "$(cat "$venv/set-up-for" 2>/dev/null || true)" = "$wanted" ]; then
        return
    fi
    echo "setting up Python in $venv"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" -r "$lock"
    "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" --no-deps -e clients/python
    echo "$wanted" > "$venv/set-up-for"
}

set_up target/python clients/python/requirements.lock
set_up target/python-otel clients/python/requirements-otel.lock
