#!/usr/bin/env bash
# Runs the tests that show promises of the checkpoint system and writes docs/checkpoint-rows.md from what they report.
set -euo pipefail
cd "$(dirname "$0")/.."

STREAMDB_CHECKPOINT_ROWS=$(mktemp)
export STREAMDB_CHECKPOINT_ROWS
trap 'rm -f "$STREAMDB_CHECKPOINT_ROWS"' EXIT

# The names of the test functions of the given files that call Shows.
tests() { awk '/^func Test/ {match($0, /Test[A-Za-z0-9_]+/); name = substr($0, RSTART, RLENGTH)} /checkpointrows\.Shows\(/ {print name}' "$@" | sort -u | paste -sd '|'; }

status=0
for dir in $(git grep -l 'checkpointrows\.Shows(' -- '*_test.go' | grep -v '^internal/checkpointrows\|/checkpointrows_test.go' | xargs -n1 dirname | sort -u); do
	names=$(tests $(git grep -l 'checkpointrows\.Shows(' -- "$dir/*_test.go" | xargs -n1 dirname | sort -u | sed 's#$#/*_test.go#'))
	tags=invariants
	[[ $dir == e2e* ]] && tags=e2e
	PATH="$PWD/.cache/bin:$PATH" go test -tags "$tags" -count=1 -timeout 30m -run "^($names)\$" "./$dir" || status=1
done
go test ./docs -count=1 -run '^TestCheckpointRows$' -rewrite
exit "$status"
