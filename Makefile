# Every target works on a fresh clone: what it needs, test/setup.sh installs.
# `make check` is exactly what continuous integration runs.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
# Targets of one run share bin/ and the two halves of check print to one log.
.NOTPARALLEL:

# How long each fuzz target runs in `make fuzz`.
FUZZTIME     ?= 30s
# The bound of one package's tests: a hang ends with every goroutine's stack and
# not with the runner's patience.
TEST_TIMEOUT ?= 12m
# For how long `make chaos` has load on each deployment, six of them, three at a time;
# from which seed, another one each time if it is empty; and where it keeps what was seen.
DURATION     ?= 2m
SEED         ?=
ARTEFACTS    ?= artefacts
# The version that `leased version` prints.
VERSION      ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

.PHONY: help
help: ## Show this list.
	@awk 'BEGIN { FS = ":.*## " } /^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build a static ./bin/leased.
	CGO_ENABLED=0 go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/leased ./cmd/leased

# The packages whose tests hold nothing to a time that users were promised: two of
# them may run at once. Every other package runs alone, one that is new too: two
# suites on two cores would measure each other.
# The longest comes first, so that it ends with the others.
TOGETHER := ./test/fleet ./client/guard ./contract/... ./gateway/api \
	./test/arch ./test/deploy ./test/history ./test/proc
# Those that use little of the machine run beside the ones that run alone, which let
# them go first: they are not measured by each other then.
BESIDE := ./client ./test/fault ./cluster/clustertest ./cmd/... ./test/docs
# -count=1: the end-to-end tests build the program, which the cache cannot see.
# -vet=off: go vet has seen everything, and more.
GO_TEST := go test -race -count=1 -vet=off -timeout $(TEST_TIMEOUT)

.PHONY: test
test: ## Run go vet and every test, with the race detector.
	test/setup.sh
	go vet -tags bench,chaos ./...
	# go test -p 1 would compile one package at a time as well.
	go list -race -export -test ./... >/dev/null
	alone=$$(go list ./... | grep -vxFf <(go list $(TOGETHER) $(BESIDE))); failed=0; \
	$(GO_TEST) -p 2 $(TOGETHER) || failed=1; \
	$(GO_TEST) -p 1 $(BESIDE) & \
	nice -n 5 $(GO_TEST) -p 1 $$alone || failed=1; \
	wait $$! || failed=1; \
	exit $$failed

.PHONY: lint
lint: ## Run the linters, the format check and go mod tidy's check.
	test/setup.sh lint
	bin/tools/golangci-lint config verify # a misspelt setting is ignored by run
	bin/tools/golangci-lint run
	for script in .ci/* test/*.sh; do bash -n "$$script"; done
	go mod tidy -diff

.PHONY: check
check: test lint ## Run what continuous integration runs: test and lint.

.PHONY: contract
contract: ## Run the contract suite on every backend, naming each rule.
	test/setup.sh
	# A backend with several deployments has a TestContract for each of them. One
	# package at a time: the rules hold stores to bounds in real time.
	go test -race -count=1 -v -p 1 -timeout $(TEST_TIMEOUT) -run '^TestContract|Broken' \
		./contract/... ./backends/... | test/contract.sh

.PHONY: bench
bench: ## Measure speed and memory, and print the ratios that must hold.
	test/setup.sh
	go test -tags bench -count=1 -v -timeout 30m ./test/bench

.PHONY: chaos
chaos: ## Kill, pause and cut off servers and holders for longer than make test does.
	test/setup.sh
	mkdir -p $(ARTEFACTS)
	# What fails does not keep the rest from running: a night has one try.
	# One package at a time: a fleet of 100,000 leases is held to half a processor.
	# Then histories of all deployments, which are kept: the first lines of each test say
	# where; and each backend with each of its defects. At last the contract suite through
	# the nodes of a cluster in one process, behind a tag: it takes three minutes, and under
	# the race detector two cores are too slow for raft.
	failed=0; \
	LEASED_CHAOS=1 go test -count=1 -v -p 1 -timeout 60m ./test/cluster ./test/fleet ./test/holding || failed=1; \
	SEED=$(SEED) DURATION=$(DURATION) go test -count=1 -v -timeout 60m -artifacts -outputdir $(abspath $(ARTEFACTS)) ./test/prove || failed=1; \
	go test -tags chaos -count=1 -timeout 30m -run TestContract_cluster ./backends/raftkv || failed=1; \
	exit $$failed

.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME each (30s unless given).
	test/fuzz.sh $(FUZZTIME)

.PHONY: fmt
fmt: ## Format the code and its imports.
	test/setup.sh lint
	bin/tools/golangci-lint fmt

.PHONY: clean
clean: ## Remove what the build made; bin/tools, slow to build, stays.
	rm -f bin/leased
	go clean -testcache
