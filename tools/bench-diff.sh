#!/usr/bin/env bash
# usage: bench-diff.sh REVISION ROUNDS 'bench command' …
# Builds a revision and the working tree, runs each command with both in turn, and compares.
set -euo pipefail

base=$1 rounds=$2
shift 2
tmp=$(mktemp -d)
cleanup() {
	git worktree remove --force "$tmp/tree" 2>/dev/null || true
	rm -rf "$tmp"
}
trap cleanup EXIT
git worktree add --quiet --detach "$tmp/tree" "$base"
(cd "$tmp/tree" && CGO_ENABLED=0 go build -trimpath -o "$tmp/base" ./cmd/streamdb)
CGO_ENABLED=0 go build -trimpath -o "$tmp/new" ./cmd/streamdb
for round in $(seq "$rounds"); do
	for command in "$@"; do
		for which in base new; do
			# shellcheck disable=SC2086 # a command is several words
			"$tmp/$which" bench $command --go-bench >>"$tmp/$which.txt"
		done
	done
	echo "bench-diff: round $round of $rounds" >&2
done
go tool -modfile=tools/go.mod benchstat "$base=$tmp/base.txt" "here=$tmp/new.txt"
