# `make` lists the targets. They need only Go; `make setup` installs what the tests need.
CHAOS ?= 3m
FOR   ?= 1h
PARTS  = worlds clusters programs client outbox processes console sdks api envoy deploy bench

.DEFAULT_GOAL := help
.PHONY: help build man image release run demo setup test test-all lint simulate mutants strict outage chaos fuzz reference screenshots

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/admitter, bin/drainer, the client bin/penstock and bin/penstock-lab
	@mkdir -p bin
	go build -o bin ./cmd/admitter ./cmd/drainer
	go build -C cmd/penstock -o $(CURDIR)/bin/ . ./penstock-lab

run: build ## an admitter that drains, with a policy of each algorithm, and a target that shows what arrives
	bin/admitter --drain --echo 127.0.0.1:8081 --config deploy/quickstart.yaml

demo: build ## the main job in a minute: bursts, a strict API, a killed drainer; then ten processes that call an API
	go build -o bin/demo ./internal/demo
	go -C bench build -o ../bin/callers ./callers
	@bin/demo && echo && bin/callers -admitter bin/admitter

setup: ## install what the tests need in addition to Go (C compiler, redis-server, python3, chromium, node), or print how
	@scripts/setup
	$(if $(RERUN),@go run gotest.tools/gotestsum@v1.13.0 --version)

# Two parts at once, because the first waits for half of its time.
test: setup ## what to run before a commit
	@$(MAKE) --no-print-directory -j 2 test-race test-worlds

test-all: test-race $(PARTS:%=test-%) ## all tests

test-%: setup ## one part of the tests; scripts/test lists them
	@scripts/test $*

lint: ## gofmt, go vet (also for macOS, Windows and 32 bit), staticcheck, errcheck, tidy go.mods
	@scripts/lint

simulate: ## the laws in virtual time, with new seeds, for FOR=1h
	go test ./workers/internal/core -run 'TestSimulation(Laws|OfAnOutage)' -timeout 0 -v -fresh $(FOR)

mutants: ## small changes of the code, all or ONLY=pattern, in five minutes: a test must fail for each
	nice go run ./internal/mutants $(if $(RERUN),,-v) $(if $(ONLY),-only '$(ONLY)') $(if $(SHARE),-share $(SHARE) -seed $(SEED))

chaos: ## CHAOS=3m of crashes, freezes and cuts on real processes; SEED= plays those of a seed, FAULTS= some kinds, SYNC=always, POLICIES=300
	@mkdir -p bin
	go build -o bin ./cmd/admitter ./cmd/drainer ./internal/chaos github.com/nats-io/nats-server/v2
	@bin/chaos -bin bin -for $(CHAOS) $(if $(SEED),-seed $(SEED)) $(if $(SYNC),-sync $(SYNC)) $(if $(FAULTS),-only '$(FAULTS)') $(if $(POLICIES),-policies $(POLICIES))

strict: ## what a target counts by its own clock while all is frozen, killed, held and cut; SEED=; LONG=1: in full, docs/strict.md
	go -C bench run ./strict $(if $(SEED),-seed $(SEED)) $(if $(LONG),-windows 300 -window 1s -for 30m -out ../docs)

outage: ## a target that is down for OUTAGE=10m, with the default retries, on a real process
	go test ./cmd/admitter -run TestATargetThatIsDown -count 1 -v -timeout 2h -outage $(or $(OUTAGE),10m)

fuzz: ## each fuzz target for FUZZTIME=20s
	@scripts/fuzz

bench-%: setup ## a measurement; scripts/bench lists them
	@scripts/bench $*

reference: ## openapi.yaml, docs/reference and the types of clients, from structs, routes, commands, metrics, alerts and settings
	go test ./config ./deploy -count=1 -run TheReferenceOf -reference
	go -C cmd/penstock test . ./penstock-lab -count=1 -run TheReferenceOf -reference
	go -C internal/apitest test -count=1 -run TheReferenceOf -reference

screenshots: setup ## pictures of the console in Chromium, and of simulations: docs/console/, docs/simulate/, in about a minute
	go -C internal/consoletest test -count=1 -run Documented -shots $(CURDIR)/docs/console
	go test ./docs -count=1 -run Simulating -pictures simulate

man: ## manual pages of penstock and penstock-lab, in bin/man
	@mkdir -p bin/man
	go -C cmd/penstock run . man $(CURDIR)/bin/man
	go -C cmd/penstock run ./penstock-lab man $(CURDIR)/bin/man

image: ## a container image of all programs, localhost/penstock:latest, by buildah, podman or docker
	scripts/image

release: ## bin/release: archives of all programs for each platform, their contents (SBOM), and checksums; VERSION=v0.1.0 tags the modules
	scripts/release $(VERSION)
