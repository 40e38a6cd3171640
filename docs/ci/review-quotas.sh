#!/bin/sh
# Says what a change of a quotas file would do, for the comment on its pull request:
#
#   review-quotas.sh FILE BASE USAGE…
#
# FILE is compared with what it was where the branch left BASE (a branch or commit), under recorded usage of the
# brokers. Writes comment.md: the plan, and the clients for whom something changes, or what is wrong. The exit code is 1
# when clients would be newly throttled, or throttled more than they are, or when 'kquota apply' would refuse the plan;
# kquota's own when something is wrong, else 0. '--fail-on undetermined' in the last line stops what is not known, too.
set -eu
file=$1
base=$2
shift 2

left=$(git merge-base "$base" HEAD)
before=${file%.*}.before.yaml
problems=$before.txt
trap 'rm -f "$before" "$problems"' EXIT
if git cat-file -e "$left:./$file" 2>/dev/null; then
    git show "$left:./$file" >"$before"
else
    printf 'kind: kquota.quotas\nversion: 1\nquotas: []\n' >"$before"
fi

# Runs kquota for the comment. What ends it with another exit code than 0 or 1 stands there, too.
say() {
    code=0
    kquota "$@" -o markdown >>comment.md 2>"$problems" || code=$?
    cat "$problems" >&2
    sed -n 's/^some limits are undetermined: /\n&/p' "$problems" >>comment.md
    if [ "$code" -gt 1 ]; then
        printf '### kquota %s ended with exit code %s\n\n```text\n%s\n```\n' "$1" "$code" "$(cat "$problems")" >>comment.md
    fi
    return "$code"
}

# --prune: what the file no longer names is deleted. Leave it out where 'kquota apply' runs without.
: >comment.md
changes=0
say plan "$file" --quotas "$before" --prune --exit-code --quiet || changes=$?
if [ "$changes" -ne 1 ]; then
    exit "$changes"
fi
echo >>comment.md
say audit "$@" --quotas "$file" --against "$before" --fail-on newly-throttled --fail-on throttled-more
kquota plan "$file" --quotas "$before" --prune --fail-on refused --quiet >/dev/null
