#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time. New findings stay in testdata/fuzz of their package.
set -euo pipefail

time=${1:-5s}
n=0
for file in $(grep -rl --include='*_test.go' '^func Fuzz' . | sort); do
	dir=$(dirname "$file")
	for target in $(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$file"); do
		echo "== $dir $target"
		go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir"
		n=$((n + 1))
	done
done
echo "fuzz: $n targets passed, 0 failed"
