# Everything a developer and CI do. `make` lists it.
GO ?= go
BIN := $(CURDIR)/.bin
GOLANGCI_VERSION := v2.15.0
# admin speaks little over HTTP, and is the largest: it does without HTTP/2.
LAMBDA_FLAGS = -tags lambda.norpc$(if $(filter admin,$(1)),$(comma)nethttpomithttp2) -trimpath -ldflags '-s -w'
comma := ,
FUNCTIONS := intake relay worker reconcile admin

.PHONY: help demo dev validate schema-hash test pooled lint build model interop boundaries bench-quick bench bench-full clean
.PHONY: soak week matrix
.PHONY: sim
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: ## run all of it on this machine and compare HubSpot with what must be
	$(GO) run ./cmd/hubsync demo

dev: ## run all of it until Ctrl-C
	$(GO) run ./cmd/hubsync dev

test: ## every test, with the race detector, over a PostgreSQL of its own
	$(GO) test -race -shuffle=on -timeout 10m ./...

pooled: ## what speaks to the database, through PgBouncer in transaction mode
	HUBSYNC_TEST_POOLER=1 $(GO) test -count=1 -timeout 10m ./shared/postgres/... ./shared/intake ./shared/relay ./shared/reconcile

model: ## explore the protocol exhaustively, with and without each of its rules
	@$(GO) test -count=1 -v ./shared/simtest/model | awk '!/^=== /{print} /^(FAIL|--- FAIL)/{bad=1} END{exit bad}'

sim: ## seeds through everything, with faults: SIM_SEEDS, SIM_START, or SIM_SEED alone
	@SIM_SEEDS=$${SIM_SEEDS:-500} $(GO) test -count=1 -timeout 30m ./shared/simtest/sim -run '^TestSeeds$$' -v | awk '!/^=== /{print} /^(FAIL|--- FAIL)/{bad=1} END{exit bad}'

week: ## a simulated week of an unreliable HubSpot, with people who opt out inside it
	$(GO) test -count=1 -timeout 10m -tags week -run TestAWeek -v ./shared/simtest

matrix: ## the tests that docs/failure-matrix.csv names: every cell proven
	@$(GO) run ./shared/matrix/prove

soak: ## a load through the local world, judged by HubSpot's ledger; REDIS_URL uses a real Redis
	$(GO) run ./cmd/hubsync soak --faults duplicate,shuffle
	$(GO) run ./cmd/hubsync soak --bulk --decisions 20000 --rate-scale 1

lint: $(BIN)/golangci-lint ## formatting, vet, linters, import directions, module files
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { gofmt -l $$(git ls-files '*.go'); echo 'gofmt: the files above are not formatted'; exit 1; }
	$(GO) vet ./...
	$(BIN)/golangci-lint run ./...
	cd bench && $(GO) vet -mod=mod ./... && $(BIN)/golangci-lint run ./...
	$(GO) mod tidy -diff

$(BIN)/golangci-lint:
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

# What sam build calls for each function of template.yaml, and what it passes.
build-AdminFunction build-IntakeFunction build-RelayFunction build-WorkerFunction build-ReconcileFunction: build-%Function:
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) build $(call LAMBDA_FLAGS,$(shell echo $* | tr A-Z a-z)) -o $(ARTIFACTS_DIR)/bootstrap ./functions/$(shell echo $* | tr A-Z a-z)

build: $(FUNCTIONS:%=build/%/bootstrap) ## the Lambda functions' arm64 bootstraps

build/%/bootstrap: FORCE
	CGO_ENABLED=0 GOOS=linux GOARCH=arm64 $(GO) build $(call LAMBDA_FLAGS,$*) -o $@ ./functions/$*

.PHONY: FORCE
FORCE:

validate: ## what can be said of template.yaml without an account (asks cfn-lint and the SAM transform where they are)
	$(GO) test -count=1 ./shared/templatetest

schema-hash: ## write the hash of migrations/ into template.yaml: run it after adding a migration
	hash=$$($(GO) run ./cmd/hubsync migrate --hash) && sed "s/^      Version: \"[0-9a-f]*\"$$/      Version: \"$$hash\"/" template.yaml > template.yaml.new && mv template.yaml.new template.yaml

clean: ## remove what was built
	rm -rf build .bin

interop: ## the vendors' own Node clients judge the emulators (needs npm)
	$(GO) build -o $(BIN)/hubsync ./cmd/hubsync
	cd interop && npm install --no-package-lock --ignore-scripts --no-audit --no-fund && HUBSYNC=$(BIN)/hubsync node --test

boundaries: ## the tables of bad input and the nine crashes, with the number of their cases
	@$(GO) test -count=1 -v ./shared/intake ./shared/qstash ./shared/worker ./shared/routing ./shared/config ./shared/lambdahttp ./shared/hubspot ./shared/simtest \
	  | awk '/ cases in the tables of /{print; n+=$$1} /^--- PASS: TestCrash/{c++; print} /^(FAIL|--- FAIL)/{bad=1; print} END{print n " cases, " c " crashes"; exit bad}'

# bench is a module of its own, with its peers; -mod=mod follows what the main module requires.
bench-quick: ## speed beside the peers, under 2 minutes; fails where a ratio fell below its gate
	@$(GO) -C bench run -mod=mod . -form quick

bench: ## the same with more rounds and sizes, under 15 minutes
	@$(GO) -C bench run -mod=mod . -form standard -plots $(CURDIR)/docs

bench-full: ## the same with 5 million pending events and a million people
	@$(GO) -C bench run -mod=mod . -form full -plots $(CURDIR)/docs
