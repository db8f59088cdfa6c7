#!/usr/bin/env bash
# Lints and tests the Python client and the sample agents; expects scripts/setup-python.sh to have run.
set -euo pipefail
cd "$(dirname "$0")/.."

# Where the tests of the programs ran, they are built already, and the example with them.
[ -x target/debug/examples/attach-door ] || cargo build --locked --bins --examples

cd clients/python

bin=../../target/python/bin
"$bin/ruff" check .
"$bin/ruff" format --check .
"$bin/mypy"
"$bin/mypy" tests/as_users_type_it.py
"$bin/pytest" --quiet
# The rest of the range of OpenTelemetry that the client takes.
../../target/python-otel/bin/pytest --quiet tests/test_tracing.py tests/test_trace_context.py
