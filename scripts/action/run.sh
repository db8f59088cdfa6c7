#!/usr/bin/env bash
# A step of the action: runs forgectl, and keeps its exit code for the last step, so that those between see what came of it.
set -euo pipefail

results=$RUNNER_TEMP/forge
rm -rf "$results"
mkdir -p "$results"
echo "results=$results" >> "$GITHUB_OUTPUT"

args=()
if [ -n "${FORGE_ARGS//[[:space:]]/}" ]; then
    # xargs knows quotes, and unlike a shell it runs nothing of what it reads.
    printf '%s' "$FORGE_ARGS" | xargs printf '%s\0' > "$results/args"
    while IFS= read -r -d '' arg; do args+=("$arg"); done < "$results/args"
    rm "$results/args"
fi
fail_on=$FORGE_FAIL_ON
if [ -n "$FORGE_BASELINE" ] && [ -f "$FORGE_BASELINE" ]; then
    args+=(--baseline "$FORGE_BASELINE")
elif [ -n "$FORGE_BASELINE" ]; then
    echo "::notice title=Forge::there is no baseline yet, so nothing is compared, and every failure counts"
    [ "$fail_on" != regressed ] || fail_on=failed
fi
[ -z "$fail_on" ] || args+=(--fail-on "$fail_on")
[ -z "$FORGE_COMMENT_NAME" ] || args+=(--label "comment=$FORGE_COMMENT_NAME")

code=0
forgectl run "${args[@]}" \
    -o "$results/forge.json" -o "$results/forge.md" -o "$results/forge.html" -o "$results/forge.xml" || code=$?
echo "exit-code=$code" >> "$GITHUB_OUTPUT"
