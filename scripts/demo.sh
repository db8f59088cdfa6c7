#!/usr/bin/env bash
# Builds everything, starts a daemon and one agent in Python, TypeScript and Rust each, runs the same suites against all
# of them, and prints one table. One case fails on purpose; the demo exits with 0 if that is the only one.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }

for program in cargo python3 node npm; do
    command -v $program > /dev/null || { echo "demo: $program is needed, and is not on the PATH" >&2; exit 1; }
done

say "Building the programs, and setting up Python and TypeScript"
cargo build --locked --bins --examples
scripts/setup-python.sh
scripts/setup-typescript.sh

work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null || true; rm -rf "$work"' EXIT

# Starts a program in the background and reads the address in its first line, `listening on ADDRESS`.
start() {
    local name=$1 log=$work/$1.out line
    shift
    : > "$log"
    "$@" >> "$log" 2> "$log.err" &
    for _ in $(seq 300); do
        line=$(head -n 1 "$log")
        if [ "${line#listening on }" != "$line" ]; then
            address=${line#listening on }
            return
        fi
        kill -0 $! 2> /dev/null || break
        sleep 0.1
    done
    echo "demo: $name did not start:" >&2
    cat "$log.err" >&2
    exit 1
}

say "Starting a daemon"
start daemon target/debug/forge-daemon --listen 127.0.0.1:0 --data-dir "$work/data"
export FORGE_DAEMON=http://$address
echo "forge-daemon at $FORGE_DAEMON"

say "Starting the weather agent in three languages (no key and no network needed)"
agent() {
    local language=$1
    shift
    start "$language" "$@" --listen 127.0.0.1:0
    target/debug/forgectl agents add "weather.$language" "grpc://$address"
}
agent python target/python/bin/python -m forge_daemon.samples.weather
agent typescript node --import ./clients/typescript/node_modules/tsx/dist/loader.mjs clients/typescript/samples/weather.ts
agent rust target/debug/examples/weather

# run LANGUAGE SUITE [ARGUMENT…]: writes the result to target/demo, and the exit code beside it.
run() {
    local language=$1 suite=$2 code=0
    shift 2
    target/debug/forgectl run "evals/$suite.json" -n "weather.$language" --output-dir "$work/results" \
        -o "target/demo/$suite.$language.json" "$@" || code=$?
    echo "$code" > "$work/$suite.$language.code"
}
rm -rf target/demo
mkdir -p target/demo

say "forgectl run evals/weather.golden.json -n weather.python"
run python weather.golden
echo "One case fails on purpose: that is what a failure looks like. So forgectl exits with 1."

say "The same suites against all of them"
for suite in weather.golden weather.labeled; do
    for language in python typescript rust; do
        run $language $suite --quiet > "$work/$suite.$language.log" 2>&1 &
        runs+=($!)
    done
    wait "${runs[@]}"
done
target/python/bin/python scripts/demo-table.py target/demo "$work" || { cat "$work"/*.log >&2; exit 1; }

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
