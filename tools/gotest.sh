#!/usr/bin/env bash
# Runs go test with the given arguments, shows packages and failures as they come, and ends with totals: of tests, of packages, and of the
# sqllogictest files in each of their modes.
set -uo pipefail

log=$(mktemp)
trap 'rm -f "$log"' EXIT

go test -v "$@" >"$log" 2>&1 &
pid=$!
# What is worth seeing while it runs: packages, failed tests, and anything between that is not the noise of -v.
tail -n +1 -f --pid="$pid" "$log" | grep --line-buffered -E '^(ok|FAIL|panic:|#)|^ *--- FAIL' | grep --line-buffered -v -E '^FAIL$' || true
wait "$pid"
status=$?

count() { grep -c -E "$1" "$log" || true; }
passed=$(count '^ *--- PASS')
failed=$(count '^ *--- FAIL')
skipped=$(count '^ *--- SKIP')

if [ "$status" -ne 0 ]; then
	echo
	echo "== output of what failed"
	# The output of a test stands between its === RUN and its --- FAIL.
	awk '/^=== (RUN|CONT|NAME|PAUSE)/ {next} /^ *--- (PASS|SKIP)/ {buf=""; next} /^(PASS|ok|\?)/ {buf=""; next}
		{buf=buf $0 "\n"} /^ *--- FAIL/ || /^FAIL/ || /^panic/ {printf "%s", buf; buf=""} END {printf "%s", buf}' "$log" | tail -n 400
fi

slt=$(grep -E '^ +slt_test\.go:[0-9]+: [a-z-]+: ' "$log" | sed -E 's/^ +slt_test\.go:[0-9]+: //' || true)
reports=$(grep -A 30 -E '^ +[a-z0-9]+_test\.go:[0-9]+: [0-9]+ kills' "$log" | awk '/_test\.go:/ && !/kills/ {exit} /^---|^===/ {exit} {print}' || true)
echo
[ -n "$reports" ] && { echo "$reports"; echo; }
if [ -n "$slt" ]; then
	echo "sqllogictest:"
	grep -A 1 -E '^ +slt_test\.go:[0-9]+: [a-z-]+: ' "$log" | grep -v '^--' | sed -E 's/^ +slt_test\.go:[0-9]+: /  /; s/^        /    /'
	echo
fi
echo "packages: $(count '^ok') ok, $(count '^FAIL.+github') failed"
echo "tests: $passed passed, $failed failed, $skipped skipped"
exit "$status"
