#!/usr/bin/env bash
# Sets up target/phoenix, a virtual environment with Arize Phoenix, which the tests run as their OTLP receiver.
# Does nothing when it is there already and neither the pins nor this script changed.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=target/phoenix
lock=tests/phoenix/requirements.lock
wanted=$(cat "$lock" scripts/setup-phoenix.sh | sha256sum | cut -d ' ' -f 1)
if [ "$(cat "$venv/set-up-for" 2>/dev/null || true)" = "$wanted" ]; then
    exit 0
fi
echo "setting up Phoenix in $venv"
rm -rf "$venv"
python3 -m venv "$venv"
# Its packages are many and large: uv takes seconds for them, pip more than a minute.
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps "$(grep '^uv==' "$lock")"
"$venv/bin/uv" pip install --quiet --no-deps --python "$venv/bin/python" -r "$lock"
# Compiles the modules that the server loads, and only those: a start without that takes twice as long.
unset PYTHONDONTWRITEBYTECODE
PHOENIX_WORKING_DIR="$PWD/$venv/imported" "$venv/bin/python" -c 'import phoenix.server.main'
echo "$wanted" > "$venv/set-up-for"
