# streamdb. Needs Go alone; e2e also a shell with the usual tools. Nothing here talks to the network but Go's module proxy.

GO      ?= go
BIN     := bin/streamdb
CACHE   := $(CURDIR)/.cache/bin
TOOL    := $(GO) tool -modfile=tools/go.mod
PACKAGES := ./...

VERSITYGW         := $(CACHE)/versitygw
VERSITYGW_VERSION := v1.8.0

# TESTFLAGS are further flags of go test: make test TESTFLAGS=-race
TESTFLAGS ?=
TEST_TIMEOUT ?= 20m
E2E_TIMEOUT  ?= 20m
FUZZTIME     ?= 5s
# BENCH_STATE are the sizes of state that checkpoints are measured with; the largest needs three times as much disk. 10GiB and more say more.
BENCH_STATE  ?= 1MiB,256MiB
# BENCH_LOSS is the size of state that the loss of throughput by checkpoints is measured with.
BENCH_LOSS   ?= 256MiB
# POSTGRES is the URL of a PostgreSQL server to compare with: make bench POSTGRES=postgres://postgres@127.0.0.1/postgres
POSTGRES     ?=
# BENCH_DIFF are the benchmarks that bench-diff runs, BENCH_ROUNDS how often.
BENCH_DIFF   ?= "nexmark --query q0,q1,q2,q5,q7,q8 --events 2000000 --rounds 1"
BENCH_ROUNDS ?= 5

.PHONY: help build demo test e2e check fmt bench bench-diff fuzz checkpoint-rows versitygw clients clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/streamdb, one static binary
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/streamdb

demo: build ## auction events, views over them, and how they change
	$(BIN) demo

test: ## all tests that need no other server
	@tools/gotest.sh -tags invariants -short -timeout $(TEST_TIMEOUT) $(TESTFLAGS) $(PACKAGES)

e2e: versitygw clients ## the binary from outside: kill -9, an S3 server, broken input, real clients, PostgreSQL and its parser beside it
	@PATH="$(CACHE):$$PATH" tools/gotest.sh -tags e2e -count=1 -timeout $(E2E_TIMEOUT) $(TESTFLAGS) ./e2e/...
	@cd e2e/dialect && GOFLAGS= ../../tools/gotest.sh -count=1 -timeout $(E2E_TIMEOUT) .

check: ## format, vet, staticcheck, imports and style rules
	@out=$$($(TOOL) gofumpt -l $$(git ls-files --cached --others --exclude-standard '*.go' | grep -v /testdata/)); \
		if [ -n "$$out" ]; then echo "not formatted (make fmt):"; echo "$$out"; exit 1; fi
	$(GO) vet -tags invariants $(PACKAGES)
	$(GO) vet -tags e2e ./e2e/...
	$(TOOL) staticcheck -tags invariants $(PACKAGES)
	$(TOOL) staticcheck -tags e2e ./e2e/...
	$(GO) test -count=1 ./internal/archtest
	@echo "check: format, vet, staticcheck and style rules are clean"

fmt: ## formats all Go files
	$(TOOL) gofumpt -w $$(git ls-files --cached --others --exclude-standard '*.go' | grep -v /testdata/)

bench: build ## what docs/performance.md tells of, in a few minutes, against hand-written loops and PostgreSQL (POSTGRES=URL)
	$(BIN) bench nexmark --query q0,q1,q2,q3,q5,q7,q8,q9,q20 --events 2000000
	$(BIN) bench nexmark --query q5,q9,q16,q20 --events 2000000 --parallelism 1,2 --no-limit
	$(BIN) bench ingest --rows 2000000
	$(BIN) bench backfill --rows 2000000
	$(BIN) bench lookup --ingest 200000 $(if $(POSTGRES),--postgres $(POSTGRES))
	$(BIN) bench lookup --protocol pipelined $(if $(POSTGRES),--postgres $(POSTGRES))
	$(BIN) bench insert $(if $(POSTGRES),--postgres $(POSTGRES))
	$(BIN) bench copy --rows 2000000 --views 2 --rounds 3 $(if $(POSTGRES),--postgres $(POSTGRES))
	$(BIN) bench freshness --rate 1000 --inserts 300
	$(BIN) bench freshness --rate 200000 --inserts 300
	$(BIN) bench memory --groups 2000000
	$(BIN) bench backpressure --aligned --pressure 5s
	$(BIN) bench checkpoint --state $(BENCH_STATE)
	$(BIN) bench restore --state $(BENCH_STATE)
	$(BIN) bench checkpoint --state $(BENCH_LOSS) --loss

bench-diff: ## BENCH_DIFF built from BASE=revision and from here, in turn, compared by benchstat
	@tools/bench-diff.sh "$(or $(BASE),HEAD)" $(BENCH_ROUNDS) $(BENCH_DIFF)

fuzz: ## each fuzz target for FUZZTIME
	@tools/fuzz.sh $(FUZZTIME)

checkpoint-rows: versitygw ## runs what shows the promises of the checkpoint system and writes docs/checkpoint-rows.md
	@tools/checkpoint-rows.sh

CLIENTS := $(CURDIR)/.cache/clients

clients: $(CLIENTS)/ready ## the client libraries of the e2e tests, fetched once

$(CLIENTS)/ready: tools/clients.sh $(wildcard e2e/clients/python/requirements.txt e2e/clients/node/package*.json e2e/clients/go/*)
	@tools/clients.sh $(CLIENTS)
	@touch $@

versitygw: $(VERSITYGW) ## the S3 server of the e2e tests, built once

$(VERSITYGW):
	@mkdir -p $(CACHE)
	GOBIN=$(CACHE) CGO_ENABLED=0 $(GO) install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW_VERSION)

clean: ## removes what was built, but not the S3 server
	rm -rf bin
