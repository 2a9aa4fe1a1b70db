# `make` lists the targets. They need only Go; `make setup` installs what the tests need.

FUZZTIME ?= 20s
# The same worlds each time: a failure is caused by the change. make simulate plays others.
SEEDS    ?= 200
FOR      ?= 1h
OUTAGE   ?= 10m
CHAOS    ?= 3m
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
ERRCHECK    = github.com/kisielk/errcheck@v1.9.0
GOTESTSUM   = gotest.tools/gotestsum@v1.13.0
PLATFORMS   = darwin/arm64 windows/386

.DEFAULT_GOAL := help
.PHONY: help build man image release run demo setup test test-race worlds test-all clusters programs programs-cmd programs-docs programs-client programs-outbox processes lint simulate mutants outage chaos fuzz bench

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## bin/admitter, bin/drainer and the client, bin/penstock
	@mkdir -p bin
	go build -o bin ./cmd/admitter ./cmd/drainer
	go build -C $(CLIENT) -o $(CURDIR)/bin/ .

# Programs that need no other file, for DIR/OS-ARCH: $(call static,DIR,OS,ARCH).
static = CGO_ENABLED=0 GOOS=$(2) GOARCH=$(3) go build -trimpath -ldflags=-s -o $(1)/ ./cmd/admitter ./cmd/drainer && \
	CGO_ENABLED=0 GOOS=$(2) GOARCH=$(3) go build -C $(CLIENT) -trimpath -ldflags=-s -o $(CURDIR)/$(1)/ .

image: ## a container image of all programs, localhost/penstock:latest, by buildah, podman or docker
	rm -rf bin/image && mkdir -p bin/image/data
	$(call static,bin/image,linux,$(shell go env GOARCH))
	cp "$$(ls /etc/ssl/certs/ca-certificates.crt /etc/ssl/cert.pem 2>/dev/null | head -n 1)" bin/image/ca-certificates.crt
	@builder=$$(command -v buildah || command -v podman || command -v docker) || { \
		echo "an image needs buildah, podman or docker" >&2; exit 1; }; \
	$$builder build --file deploy/Dockerfile --tag localhost/penstock:latest bin/image

release: ## bin/release: archives of all programs for each platform, their contents (SBOM), and checksums; VERSION=v0.1.0 tags the modules
	scripts/release $(VERSION)

man: ## the client's manual pages, in bin/man
	@mkdir -p bin/man
	go -C $(CLIENT) run . man $(CURDIR)/bin/man

run: build ## an admitter that drains, with a policy of each algorithm, and a target that shows what arrives
	bin/admitter --drain --echo 127.0.0.1:8081 --config deploy/quickstart.yaml

demo: build ## the main job in a minute: bursts, a strict API, a killed drainer; then ten processes that call an API
	go build -o bin/demo ./internal/demo
	go -C bench build -o ../bin/callers ./callers
	@bin/demo && echo && bin/callers -admitter bin/admitter

setup: ## install what the tests need in addition to Go (C compiler, redis-server, python3, chromium, node), or print the command for it
	@scripts/setup
	$(if $(RERUN),@go run $(GOTESTSUM) --version)

# A separate module: importers of a package do not get its dependencies.
CLIENT    = cmd/penstock
# Slow packages that only test-all runs: they start our processes, and clusters of three servers.
PROGRAMS  = ./cmd/... ./clients ./docs ./examples/...
PROCESSES = ./internal/e2e
CLUSTERS  = ^Test(Law3ClusterLosesNothing|ARollingRestartRunsNoJobTwice|ThreeNodesKeepRoomForLeases|AServerThatCameBackShowsNoOldState|ABackupOfOneServerIsRestoredOntoThree|JobsOutliveACopyThatLacksThem|OneOfThreeServersIsAway)$$
SEARCHES  = ^Test(TheAdviceBeatsAGuessOnUnseenData|CandidatesKeepToTheOutflow)$$
# Tests wait for half of their time, so two packages fit a processor. The longest begin first.
AT_ONCE   = $$((2 * $$(getconf _NPROCESSORS_ONLN)))
LONGEST   = ./workers ./queue ./algorithms/redisstore
# Packages without concurrency, as a test of internal/walls checks: the race detector finds nothing there, and makes
# computations ten times as slow.
ALONE     = ./algorithms ./internal/zones ./policy ./queue/job ./workers/internal/claimant ./workers/internal/deep \
	./workers/internal/heap ./workers/internal/pace ./workers/internal/quota ./workers/internal/valve \
	./workers/internal/walk ./workers/whatif
# The core has no concurrency either; only its simulation runs several independent worlds at once.
CORE      = ./workers/internal/core
# These look at the sources.
SOURCES   = ./internal/walls ./internal/mutants
OTHERS    = $$(go list ./... | grep -vxF "$$(go list $(LONGEST) $(PROGRAMS) $(PROCESSES) $(ALONE) $(CORE) $(SOURCES))")

# $(call gotest,FLAGS,PACKAGES). With RERUN=1 tests that fail, if they are few, are run once more, alone: they are named at
# the end, and those that fail again fail the run. What vet finds is lint's business: else it would look at all
# dependencies once more, with the race detector and without.
gotest = CGO_ENABLED=1 go test -race -vet=off -timeout 30m $(1) $(2)
ifdef RERUN
gotest = CGO_ENABLED=1 go run $(GOTESTSUM) --format pkgname --rerun-fails=1 --rerun-fails-max-failures=6 \
	--packages="$(2)" -- -race -vet=off -timeout 30m $(1)
endif

# The same without the race detector, and yielding the processor to tests that need it in time.
plaintest = $(subst CGO_ENABLED=1,nice,$(subst -race ,,$(call gotest,$(1),$(2))))

# The two parts at once, because the first waits for half of its time.
test: setup ## what to run before a commit
	@$(MAKE) --no-print-directory -j 2 test-race worlds

test-race: setup ## its part with the race detector, real servers included
	$(call gotest,-p $(AT_ONCE) -skip '$(CLUSTERS)',$(LONGEST) $(OTHERS))

worlds: ## its part without: what shares nothing, and SEEDS=200 simulated worlds
	nice go test -vet=off $(ALONE) $(SOURCES)
	nice go test -vet=off $(CORE) -timeout 30m -seeds $(SEEDS)

test-all: test-race worlds clusters programs processes ## all tests

clusters: setup ## the part of test-all with three servers
	$(call gotest,-run '$(CLUSTERS)',./workers ./queue)

programs: programs-cmd programs-docs programs-client programs-outbox ## the part of test-all that runs our programs as users do

programs-cmd: setup
	$(call gotest,,./cmd/...)

programs-docs: setup
	$(call gotest,-p 2,$(filter-out ./cmd/...,$(PROGRAMS)))

# The search for a policy computes, at a tenth of the speed with the race detector: one of its tests is enough for that.
programs-client: setup
	cd $(CLIENT) && $(call gotest,-skip '$(SEARCHES)',./...)
	cd $(CLIENT) && $(call plaintest,-run '$(SEARCHES)',./advice)

programs-outbox: setup
	cd outbox && $(call gotest,,./...)

processes: setup ## the part of test-all whose processes are killed, frozen and held to account for their time
	$(call gotest,,$(PROCESSES))

# With RACE=-race, lint checks the packages as the race detector compiles them, which saves compiling them twice.
lint: export GOFLAGS += $(RACE)
lint: export GOGC = 400
lint: ## gofmt, go vet (also for macOS, Windows and 32 bit), staticcheck, errcheck, tidy go.mods
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "gofmt -w is needed:"; echo "$$unformatted"; exit 1; }
	go vet ./...
	@for platform in $(PLATFORMS); do \
		echo "go vet ./... for $$platform"; \
		CGO_ENABLED=0 GOOS=$${platform%/*} GOARCH=$${platform#*/} go vet ./... || exit 1; \
	done
	go run -race=0 $(STATICCHECK) ./...
	go run -race=0 $(ERRCHECK) -ignoretests -exclude scripts/errcheck.txt ./...
	@for module in $(CLIENT) outbox; do \
		go -C $$module vet ./... && go -C $$module run -race=0 $(STATICCHECK) ./... && \
		go -C $$module run -race=0 $(ERRCHECK) -ignoretests -exclude $(CURDIR)/scripts/errcheck.txt ./... && \
		go -C $$module mod tidy -diff || exit 1; \
	done
	go mod tidy -diff

simulate: ## the laws in virtual time, with new seeds, for FOR=1h
	go test ./workers/internal/core -run 'TestSimulation(Laws|OfAnOutage)' -timeout 0 -v -fresh $(FOR)

mutants: ## small changes of the code, all or ONLY=pattern, in five minutes: a test must fail for each
	nice go run ./internal/mutants $(if $(RERUN),,-v) $(if $(ONLY),-only '$(ONLY)') $(if $(SHARE),-share $(SHARE))

outage: ## a target that is down for OUTAGE=10m, with the default retries, on a real process
	go test ./cmd/admitter -run TestATargetThatIsDown -count 1 -v -timeout 2h -outage $(OUTAGE)

chaos: ## CHAOS=3m of crashes, freezes and cuts on real processes; SEED= plays those of a seed, FAULTS= some kinds, SYNC=always, POLICIES=300
	@mkdir -p bin
	go build -o bin ./cmd/admitter ./cmd/drainer ./internal/chaos github.com/nats-io/nats-server/v2
	@bin/chaos -bin bin -for $(CHAOS) $(if $(SEED),-seed $(SEED)) $(if $(SYNC),-sync $(SYNC)) $(if $(FAULTS),-only '$(FAULTS)') $(if $(POLICIES),-policies $(POLICIES))

fuzz: ## each fuzz target for FUZZTIME=20s
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

bench: ## benchmarks of checks, submissions and draining
	go test -run '^$$' -bench . -benchmem -p 1 \
		$$(grep -rl '^func Benchmark' --include='*_test.go' ./admission ./algorithms ./queue ./workers | \
			xargs -n 1 dirname | sort -u)

.PHONY: $(MODULES:%=test-module-%) bench-permits bench-calls bench-drain bench-depth soak bench-scale bench-limits bench-sync bench-end bench-limiters bench-service bench-outbox strict callers compare compare-strict accuracy reference screenshots test-bench

bench-drain: ## how exactly, fairly and fast jobs start: docs/bench-drain*, its numbers in bin, in about seven minutes
	go -C bench run ./drain -out ../docs -data ../bin

bench-permits: ## permits a second without a pace, and the memory of a waiting call
	go test -run '^$$' -bench 'Permits' -benchtime 5s .
	go test -run '^$$' -bench 'WaitingCalls' -benchtime 1x .

bench-depth: ## a policy with JOBS waiting jobs (1000000, at most 10000000): docs/bench-depth*, in about two minutes
	go -C bench run ./drain -only depth -deep $(or $(JOBS),1000000) -out ../docs -data ../bin

bench-scale: ## how cost grows with policies, keys, jobs, drainers, admitters, three servers: docs/scale-*, in ten minutes; LARGE=1 for the large ends
	go -C bench run ./scale -out ../docs $(if $(LARGE),-large) $(if $(ONLY),-only $(ONLY))

soak: ## an admitter under all kinds of traffic for FOR=1h, which must not hold more and more: docs/soak.*
	go -C bench run ./soak -for $(FOR) -out ../docs

bench-limits: ## what three limits on starts cost 100,000 keys in addition to an outflow, in about a minute
	go test -run '^$$' -bench BenchmarkLimits ./workers/internal/valve

bench-sync: ## what sync_interval: always costs publishers, on one server and on three, in one to three minutes
	go test -run '^$$' -bench BenchmarkSyncAlways -benchtime 2000x ./queue

bench-end: ## what acknowledging a job costs compared to deleting its message, on one server and on three, in three minutes
	go test -run '^$$' -bench BenchmarkEnd -benchtime 100000x ./queue

bench-limiters: setup ## how fast limiters decide, ours and others: docs/bench-limiters.md, in about four minutes
	go -C bench run ./limiters -out ../docs

strict: ## what a target counts by its own clock while all is frozen, killed, held and cut, in three minutes; LONG=1: 300 windows of a second, docs/strict.md, in twenty
	go -C bench run ./strict $(if $(SEED),-seed $(SEED)) $(if $(LONG),-windows 300 -window 1s -for 30m -out ../docs)

callers: ## ten processes that call a strict API through an SDK, without and with Penstock: docs/callers.svg, in half a minute
	go -C bench run ./callers -out ../docs

bench-calls: ## what the proxy for outbound calls adds, also to streams, and how exactly ten processes share a rate: docs/bench-calls.md, in two minutes
	go -C bench run ./calls -out ../docs

bench-service: setup ## how fast submissions and checks are answered: docs/bench-service.md, in about five minutes
	go -C bench run ./service -out ../docs

bench-outbox: setup ## transactions with a job a second compared to River's InsertTx, and how fast a relay is, in three minutes
	go -C bench test ./outbox -run '^$$' -bench .

compare: setup ## one limit for four workers, ours and other job queues': docs/compare.*, in about six minutes (npm)
	go -C bench run ./compare -out ../docs

compare-strict: setup ## what a target with a limit accepts and refuses, by its latency, of ours and other job queues: docs/compare-strict.*, in about eight minutes (npm)
	go -C bench run ./compare -strict -out ../docs

accuracy: ## how wrong a sliding counter is, and the most each algorithm lets pass: docs/accuracy.*, in some 90 seconds
	go -C bench run ./accuracy -out ../docs -data ../bin

reference: ## openapi.yaml, the pages of docs/reference and the types of clients, from structs, routes, commands, metrics, alerts and settings
	go test ./config ./deploy -count=1 -run TheReferenceOf -reference
	go -C $(CLIENT) test -count=1 -run TheReferenceOf -reference
	go -C internal/apitest test -count=1 -run TheReferenceOf -reference

screenshots: setup ## pictures of the console in Chromium, and of simulations: docs/console/, docs/simulate/, in about a minute
	go -C internal/consoletest test -count=1 -run Documented -shots $(CURDIR)/docs/console
	go test ./docs -count=1 -run Simulating -pictures simulate

# Modules with dependencies that users of the library do not need; make -j tests them in parallel. The SDKs' tests build
# the admitter for the race detector, and no SDK: that takes minutes. -count=1, because what they test is outside of their
# modules, where `go test` notices no change of files and would report a former result.
MODULES = consoletest sdktest apitest envoytest deploytest
$(MODULES:%=test-module-%): test-module-%: setup
	cd internal/$* && go mod tidy -diff && nice go vet ./... && $(call plaintest,-count=1,./...)

# The Go module proxy has older versions of envoyproxy/ratelimit only.
envoy-answers: setup ## compare gateways' limits with envoyproxy/ratelimit's code in the directory RATELIMIT; RECORD=-record writes the table
	dir=$$(mktemp -d) && printf 'go %s\nuse %s\nreplace github.com/envoyproxy/ratelimit => %s\n' \
		"$$(go -C internal/envoytest list -m -f '{{.GoVersion}}')" $(CURDIR)/internal/envoytest "$(abspath $(RATELIMIT))" >$$dir/go.work && \
		GOWORK=$$dir/go.work go -C internal/envoytest test -count=1 -v -run 'Reference|Drawn' . $(RECORD); \
		status=$$?; rm -r $$dir; exit $$status

test-module-bench: setup
	nice go -C bench vet ./...
	cd bench && $(call plaintest,,./...)

test-bench: test-module-bench $(MODULES:%=test-module-%) ## the tests of those, of the API's description, of Envoy's service, of vendors' SDKs, of the console in Chromium, and of deploy/
