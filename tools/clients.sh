#!/usr/bin/env bash
# Fetches the client libraries that the e2e tests run, in the versions that e2e/clients/ pins, into the folder given. Needs python3, node, npm,
# curl and go; java is looked for when its program runs.
set -euo pipefail

cache=$1
here=$(cd "$(dirname "$0")/../e2e/clients" && pwd)
mkdir -p "$cache/node"

JDBC=42.7.4
JDBC_SHA256=188976721ead8e8627eb6d8389d500dccc0c9bebd885268a3047180274a6031e

python3 -m venv "$cache/venv"
"$cache/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/python/requirements.txt"

cp "$here/node/package.json" "$here/node/package-lock.json" "$cache/node/"
(cd "$cache/node" && npm ci --silent --no-audit --no-fund)

if ! echo "$JDBC_SHA256  $cache/postgresql.jar" | sha256sum --check --status 2>/dev/null; then
	curl -fsS --retry 3 -o "$cache/postgresql.jar" "https://repo1.maven.org/maven2/org/postgresql/postgresql/$JDBC/postgresql-$JDBC.jar"
	echo "$JDBC_SHA256  $cache/postgresql.jar" | sha256sum --check --status
fi

(cd "$here/go" && GOFLAGS= go build -o "$cache/go-client" .)
