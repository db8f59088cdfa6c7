#!/usr/bin/env bash
# Checks the action for GitHub, and the workflows and pipelines that docs/ci.md shows, with the schemas of GitHub and GitLab and with
# actionlint.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup-ci.sh
home=target/ci

# A block of YAML in the documentation begins with the name of its file.
shown=$home/shown
rm -rf "$shown"
awk -v shown="$shown" '
    /^```yaml$/ { getline; name = $2; file = shown "/" name; folder = file; sub("/[^/]*$", "", folder); system("mkdir -p " folder); next }
    /^```$/ { file = "" }
    file { print > file }
' docs/ci.md

check=("$home/python/bin/check-jsonschema" --builtin-schema)
"${check[@]}" vendor.github-actions action.yml
"${check[@]}" vendor.github-workflows "$shown"/.github/workflows/*.yml
"${check[@]}" vendor.gitlab-ci "$shown/.gitlab-ci.yml"
NODE_PATH="$home/node_modules" node scripts/ci-lint.mjs "$home" action.yml "$shown"/.github/workflows/*.yml
for script in scripts/action/*.sh; do
    bash -n "$script"
done
echo "CI: the action and the examples passed"
