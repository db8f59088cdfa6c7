#!/usr/bin/env bash
# Builds everything, starts a daemon and a real Python agent, and runs a suite against it through forgectl.
# One case of the suite fails on purpose; the demo checks that forgectl says so, and exits 0.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

say "Building the programs"
cargo build --locked --bins
scripts/setup-python.sh

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT

# Starts a program in the background and prints the address in its first line, `listening on ADDRESS`.
start() {
    local log=$work/$1.out
    shift
    "$@" > "$log" 2> "$log.err" &
    for _ in $(seq 300); do
        if line=$(head -n 1 "$log") && [ "${line#listening on }" != "$line" ]; then
            address=${line#listening on }
            return
        fi
        sleep 0.1
    done
    echo "$1 did not start:" >&2
    cat "$log.err" >&2
    return 1
}

say "Starting a daemon"
start daemon target/debug/forge-daemon --listen 127.0.0.1:0 --data-dir "$work/data"
daemon=http://$address
echo "forge-daemon at $daemon"

say "Starting the weather agent (Python, pydantic-ai, no key and no network needed)"
start weather target/python/bin/python -m forge_daemon.samples.weather --listen 127.0.0.1:0
export FORGE_DAEMON=$daemon
target/debug/forgectl agents add weather "grpc://$address"

say "forgectl run evals/weather.golden.json -n weather"
code=0
target/debug/forgectl run evals/weather.golden.json -n weather --output-dir target/demo -o target/demo/weather.json || code=$?

if [ "$code" -ne 1 ]; then
    echo "demo: forgectl exited with $code, and 1 was expected, for the case that fails on purpose" >&2
    exit 1
fi
echo "forgectl exited with 1, because one case fails on purpose: that is what a failure looks like."

say "The portfolio agent: values from a seed manifest and a snapshot, a stubbed tool, a comparison with the run before"
start portfolio target/python/bin/python -m forge_daemon.samples.portfolio --listen 127.0.0.1:0
target/debug/forgectl agents add portfolio "grpc://$address"
portfolio() {
    target/debug/forgectl run evals/portfolio.golden.json -n portfolio --snapshot evals/snapshot.json \
        --output-dir "$work/results" --quiet "$@"
}
portfolio > /dev/null
portfolio --baseline last -o target/demo/portfolio.json

say "Done"
echo "The EvalSuiteResults are in target/demo/."
