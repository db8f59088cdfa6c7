#!/usr/bin/env bash
# A step of the action: puts the report into a comment on the pull request, in place of the one of the last run. The first line of a
# report says which comment it belongs to. Trouble here is told, and makes no check fail.
set -euo pipefail

trouble() {
    echo "::warning title=Forge::the comment on the pull request cannot be written: $1"
    exit 0
}

if [ ! -s "$FORGE_REPORT" ]; then
    exit 0
fi
FORGE_MARKER=$(head -n 1 "$FORGE_REPORT")
export FORGE_MARKER FORGE_COMMENT_AUTHOR
comments=repos/$GITHUB_REPOSITORY/issues/$FORGE_PULL_REQUEST/comments
# Only what the author wrote, and only by its first line: what an agent says stands further down.
mine='.[] | select(.user.login == env.FORGE_COMMENT_AUTHOR and ((.body | split("\n")[0] | rtrimstr("\r")) == env.FORGE_MARKER)) | .id'
ids=$(gh api --paginate "$comments?per_page=100" --jq "$mine") || trouble "those that are there cannot be read"
id=${ids%%$'\n'*}
if [ -n "$id" ]; then
    gh api --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" --field "body=@$FORGE_REPORT" --silent \
        || trouble "GitHub refuses to change it; the job needs the permission pull-requests: write"
else
    gh api --method POST "$comments" --field "body=@$FORGE_REPORT" --silent \
        || trouble "GitHub refuses it; the job needs the permission pull-requests: write, which those from forks do not get"
fi
