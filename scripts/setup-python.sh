#!/usr/bin/env bash
# Sets up target/python, a virtual environment with the Python client, the sample agents and their tests.
# Does nothing when it is there already and neither the pins nor the package's own list of files changed.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=target/python
wanted=$(cat clients/python/requirements.lock clients/python/pyproject.toml scripts/setup-python.sh | sha256sum | cut -d ' ' -f 1)
if [ "$(cat "$venv/set-up-for" 2>/dev/null || true)" = "$wanted" ]; then
    exit 0
fi
echo "setting up Python in $venv"
rm -rf "$venv"
python3 -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check uv==0.13.9
uv() { "$venv/bin/uv" pip install --quiet --python "$venv/bin/python" "$@"; }
uv -r clients/python/requirements.lock
uv --no-deps -e clients/python
echo "$wanted" > "$venv/set-up-for"
