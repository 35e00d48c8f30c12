# make run and make test are the README's two commands; make help lists the rest.

GO        ?= go
TOOL      := $(GO) tool -modfile=tools/go.mod
VERSION   ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
FUZZTIME  ?= 30s
SEED      ?= 0
SEEDS     ?= 20
STATES    ?= 3000000
WALKS     ?= 20000
SUITES    ?= memlog filelog s3log sqllog kube-apiserver robustness kubernetes-e2e-short

# Tests of the whole product run what was built.
e2e gateway: export XB_BIN := $(CURDIR)/bin/xb

# Modules that are linted beside the product: each takes seconds once it is built.
LINTED = bench test/e2e test/gateway test/lab test/regions test/servicesync test/suites

# Packages that build in seconds; the rest need k8s.io/kubernetes (minutes, once).
FAST = $(shell $(GO) list ./internal/... | grep -v -e /controlplane)

.PHONY: help run build test race lint sim explore mutants fuzz suites e2e gateway bench generate check clean

help: ## Show this help
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

run: build ## Build xb and run an object store with two accounts on this machine
	@bin/xb dev

build: ## Build bin/xb
	@echo "Building xb: some minutes the first time, which compiles Kubernetes; seconds after that."
	@$(GO) build -ldflags '-s -w -X main.version=$(VERSION)' -o bin/xb ./cmd/xb

test: build ## Run all tests but the long ones; test/run --list shows the stages
	SUITES="$(SUITES)" test/run

race: ## Run the tests of everything but the control plane under the race detector
	$(GO) test -race $(FAST)

lint: ## Check the code with the chosen linters
	@for d in . $(LINTED); do (cd $$d && $(GO) tool -modfile=$(CURDIR)/tools/go.mod golangci-lint run ./...) || exit 1; done

sim: ## Simulate SEEDS histories from SEED on, each of them the same each time
	$(GO) run ./internal/sim/replay -seed $(SEED) -seeds $(SEEDS)

mutants: ## Make deliberate faults, one at a time, and have the tests find each
	$(GO) run ./internal/mutants

explore: ## Explore the protocol of regions: STATES of each scenario, and WALKS random ways
	$(GO) test ./internal/region/explore -count=1 -timeout=8h -v -states=$(STATES) -walks=$(WALKS)

fuzz: ## Run every fuzz target for FUZZTIME
	tools/fuzz $(FUZZTIME)

suites: build ## Run others' suites: SUITES, or with SUITES= all of them
	test/suites/run $(SUITES)

e2e: build ## Run the end-to-end tests (network namespaces need root)
	for d in e2e gateway regions servicesync; do (cd test/$$d && $(GO) test -timeout 30m -v .) || exit 1; done

gateway: build ## Run the gateway's end-to-end tests, Kubernetes' own among them
	cd test/gateway && $(GO) test -timeout 60m -v ./...

bench: build ## Measure against etcd and kube-apiserver, side by side
	bench/run

generate: ## Write what is made from the code: deep copies, CRDs, docs/reference.md; and plots of docs/benchmarks
	for d in api/*/v*; do $(TOOL) controller-gen object crd paths=./$$d output:object:dir=$$d output:crd:dir=$$d || exit 1; done
	cat api/servicesync/v1alpha1/*.yaml >deploy/servicesync/crds.yaml
	rm api/aggregation/v1alpha1/*_reservations.yaml # the gateway serves them, and nothing stores them
	$(GO) test ./cmd/xb -run TestReference -update
	cd bench && $(GO) run ./plots ../docs/benchmarks

check: ## Everything that CI runs
	RACE=1 $(MAKE) test
	$(MAKE) lint

clean: ## Remove what was built
	rm -rf bin .tmp
