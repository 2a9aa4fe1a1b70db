package walls

// imports lists the imports of each directory's packages, without the standard library and tests.
// Own packages are named by their directory, the root's by a dot, other modules by the last word of
// their path. A commit that adds an import gives the reason.
const imports = `
.: admission admission/limiter algorithms internal/admission/admit internal/admission/answer
	internal/admission/httpapi internal/admission/permits internal/admission/schedules
	internal/queue/jet internal/queue/job internal/queue/kv internal/queue/store
	internal/server/audit internal/server/door internal/server/follow internal/server/guard
	internal/server/health internal/server/hosts internal/server/installation
	internal/server/lifecycle internal/server/natsconn internal/server/node
	internal/server/policyfile internal/server/targets nats.go policy queue queue/embedded workers

admission: algorithms queue
admission/limiter: admission algorithms algorithms/memstore gobreaker internal/admission/admit
	internal/base/container internal/queue/jet policy queue
admission/limiter/inredis: admission/limiter algorithms algorithms/redisstore go-redis policy
algorithms:
algorithms/memstore: algorithms
algorithms/redisstore: algorithms go-redis
api:
config: algorithms internal/admission/outbound internal/admission/schedules internal/base/decode
	internal/base/nearest internal/base/reach internal/base/strict internal/queue/inforce
	internal/server/guard internal/server/installation internal/server/lifecycle
	internal/server/natsconn internal/server/policyfile pflag policy viper
outbox: . admission internal/base/seldom internal/queue/job queue
policy: algorithms internal/base/decode internal/base/nearest internal/base/strict
	internal/base/zones
queue:
queue/embedded: internal/base/seldom internal/queue/roles nats-server nats.go nkeys policy sys
workers: api internal/base/buildinfo internal/base/container internal/base/files
	internal/base/notice internal/base/seldom internal/queue/claims internal/queue/inforce
	internal/queue/jet internal/queue/job internal/queue/kv internal/queue/store
	internal/server/installation nats.go policy queue workers/internal/alarm workers/internal/core
	workers/internal/crew workers/internal/handle workers/internal/pace workers/internal/record
	workers/internal/timepiece workers/internal/valve
workers/httptarget: internal/base/answers internal/base/clienttls internal/base/files
	internal/base/oneshot internal/base/reach internal/base/redact internal/queue/inforce
	internal/queue/job internal/server/follow oauth2 policy queue workers
workers/internal/adapt:
workers/internal/alarm: sys workers/internal/pace
workers/internal/calls: internal/queue/job workers/internal/claimant workers/internal/pace
	workers/internal/quota workers/internal/record
workers/internal/claimant: internal/queue/job queue workers/internal/heap workers/internal/pace
	workers/internal/quota workers/internal/record
workers/internal/core: api internal/queue/inforce internal/queue/job policy queue
	workers/internal/crew workers/internal/handle workers/internal/inheritance workers/internal/pace
	workers/internal/record workers/internal/valve
workers/internal/crew: internal/queue/job queue workers/internal/claimant workers/internal/gates
	workers/internal/pace
workers/internal/deep:
workers/internal/forecast:
workers/internal/gates: internal/queue/job policy queue workers/internal/pace workers/internal/quota
workers/internal/handle: queue workers/internal/record
workers/internal/heap:
workers/internal/inheritance: internal/queue/job workers/internal/pace workers/internal/quota
	workers/internal/record
workers/internal/keyqueue: internal/queue/job queue workers/internal/deep workers/internal/heap
	workers/internal/pace
workers/internal/pace: algorithms policy
workers/internal/pace/pacetest: policy
workers/internal/quota: algorithms policy
workers/internal/record: internal/queue/job queue
workers/internal/timepiece: sys workers/internal/pace
workers/internal/valve: api internal/queue/inforce internal/queue/job policy queue
	workers/internal/adapt workers/internal/calls workers/internal/claimant workers/internal/crew
	workers/internal/deep workers/internal/forecast workers/internal/gates workers/internal/handle
	workers/internal/heap workers/internal/inheritance workers/internal/keyqueue
	workers/internal/pace workers/internal/quota workers/internal/record workers/internal/walk
workers/internal/walk:
workers/natstarget: internal/base/answers internal/base/redact internal/queue/inforce
	internal/queue/jet internal/queue/job nats.go policy workers
workers/whatif: admission admission/limiter internal/queue/job policy queue workers/internal/handle
	workers/internal/heap workers/internal/pace workers/internal/record workers/internal/valve
workers/workersprom: api client_golang internal/queue/jet internal/server/promsink queue
workers/workerstest: algorithms internal/queue/inforce internal/queue/jet internal/queue/store
	internal/server/audit nats.go policy queue queue/embedded workers

internal/base/answers: internal/base/hints policy
internal/base/buildinfo:
internal/base/clienttls: internal/server/follow
internal/base/container:
internal/base/cron:
internal/base/decode: algorithms internal/base/nearest mapstructure yaml
internal/base/errs:
internal/base/files: sys
internal/base/hints: httpsfv
internal/base/nearest:
internal/base/notice:
internal/base/oneshot: sys
internal/base/reach:
internal/base/redact:
internal/base/seldom:
internal/base/strict: internal/base/decode internal/base/nearest yaml
internal/base/zones: internal/base/nearest

internal/queue/backup: internal/queue/jet internal/queue/jsapi nats.go
internal/queue/claims: internal/queue/job nats.go
internal/queue/inforce: algorithms api internal/base/strict policy
internal/queue/jet: api internal/base/cron internal/base/errs internal/base/zones internal/queue/job
	internal/queue/jsapi internal/queue/kv internal/server/installation internal/server/natsconn
	nats.go policy queue
internal/queue/job: algorithms api policy queue
internal/queue/jsapi: internal/queue/job internal/server/natsconn nats.go nuid queue
internal/queue/kv: internal/base/errs internal/queue/job internal/queue/jsapi nats.go
internal/queue/roles: policy
internal/queue/store: internal/base/errs internal/queue/inforce internal/queue/jet
	internal/queue/job internal/queue/kv policy queue

internal/admission/access: api internal/base/nearest internal/base/strict internal/server/hosts
internal/admission/admit: admission algorithms internal/admission/access internal/base/container
	internal/queue/inforce internal/queue/jet internal/queue/job nats.go policy queue
internal/admission/answer: admission api internal/admission/admit internal/admission/permits
	internal/base/seldom internal/queue/jet internal/queue/job nats.go policy queue
internal/admission/console:
internal/admission/httpapi: admission algorithms api internal/admission/access
	internal/admission/admit internal/admission/answer internal/admission/manage
	internal/admission/permits internal/admission/schedules internal/admission/watch
	internal/base/nearest internal/queue/inforce internal/queue/jet internal/queue/job
	internal/server/health internal/server/hosts policy queue
internal/admission/manage: admission algorithms api internal/admission/admit
	internal/admission/watch internal/base/redact internal/queue/inforce internal/queue/jet
	internal/queue/job internal/queue/store internal/server/audit nats.go policy queue workers
internal/admission/natsapi: admission internal/admission/admit internal/admission/answer
	internal/admission/manage internal/queue/jet internal/queue/job nats.go queue
internal/admission/outbound: admission brotli compress internal/admission/access
	internal/admission/admit internal/admission/permits internal/base/answers
	internal/base/clienttls internal/base/files internal/base/nearest internal/base/oneshot
	internal/queue/inforce internal/queue/job policy queue workers/httptarget
internal/admission/permits: admission internal/admission/admit internal/base/answers
	internal/base/clienttls internal/base/files internal/base/oneshot internal/queue/claims
	internal/queue/jet internal/queue/job nats.go policy queue
internal/admission/schedules: admission algorithms api internal/admission/admit internal/base/cron
	internal/base/nearest internal/base/zones internal/queue/inforce internal/queue/jet
	internal/queue/job nats.go policy queue
internal/admission/watch: admission api internal/admission/admit internal/queue/jet queue

internal/server/audit: algorithms internal/queue/inforce internal/queue/jet internal/queue/job
	internal/queue/store policy queue
internal/server/daemon: config internal/admission/access internal/base/buildinfo
	internal/base/container internal/base/files internal/base/nearest internal/base/strict
	internal/queue/jet internal/server/follow internal/server/guard internal/server/hosts
	internal/server/openid internal/server/telemetry pflag policy queue/embedded workers
internal/server/door: admission internal/admission/admit internal/admission/console
	internal/admission/httpapi internal/admission/manage internal/admission/natsapi
	internal/admission/permits internal/admission/schedules internal/admission/watch
	internal/base/buildinfo internal/queue/inforce internal/queue/jet internal/server/audit
	internal/server/guard internal/server/lifecycle internal/server/targets nats.go policy queue
internal/server/envoy: admission algorithms envoy grpc internal/admission/access
	internal/admission/admit internal/base/nearest internal/base/strict internal/queue/jet
	internal/server/guard internal/server/lifecycle policy protobuf queue
internal/server/follow: internal/server/health
internal/server/guard: internal/admission/access internal/server/follow internal/server/hosts
	internal/server/lifecycle
internal/server/health: api
internal/server/hosts:
internal/server/installation:
internal/server/lifecycle:
internal/server/natsconn: internal/base/seldom nats.go
internal/server/node: api internal/admission/schedules internal/base/files internal/base/notice
	internal/base/seldom internal/queue/inforce internal/queue/jet internal/queue/job
	internal/queue/kv internal/queue/store internal/server/health internal/server/lifecycle
	internal/server/natsconn nats.go policy queue queue/embedded
internal/server/openid: go-oidc internal/admission/access internal/base/clienttls
internal/server/policyfile: internal/base/nearest internal/base/strict policy
internal/server/promsink: client_golang queue
internal/server/targets: internal/base/reach internal/queue/inforce nats.go policy workers
	workers/httptarget workers/natstarget
internal/server/telemetry: client_golang internal/queue/inforce internal/queue/jet
	internal/queue/store internal/server/audit internal/server/promsink queue workers/workersprom
internal/server/tracing: admission internal/base/buildinfo internal/base/seldom internal/queue/job
	nats.go otel otlptrace otlptracehttp sdk trace workers

cmd/admitter: . admission/limiter admission/limiter/inredis config go-redis
	internal/admission/access internal/admission/outbound internal/base/buildinfo
	internal/base/clienttls internal/base/notice internal/queue/backup internal/queue/inforce
	internal/queue/jet internal/queue/job internal/server/daemon internal/server/envoy
	internal/server/follow internal/server/guard internal/server/health internal/server/lifecycle
	internal/server/telemetry internal/server/tracing nats.go nkeys pflag policy queue
	queue/embedded
cmd/drainer: config internal/admission/admit internal/admission/httpapi internal/server/daemon
	internal/server/follow internal/server/guard internal/server/health internal/server/hosts
	internal/server/lifecycle internal/server/natsconn internal/server/targets
	internal/server/telemetry internal/server/tracing nats.go workers

internal/kit/algorithmstest: algorithms
internal/kit/answertest: internal/kit/waittest internal/queue/inforce internal/queue/jet policy
	queue workers workers/workerstest
internal/kit/brokertest: internal/kit/natstest internal/queue/jet internal/queue/store nats.go
	policy queue/embedded
internal/kit/certtest:
internal/kit/h2test: internal/kit/certtest
internal/kit/natstest: internal/kit/waittest nats-server nats.go queue/embedded
internal/kit/overlaptest: internal/kit/waittest
internal/kit/penstocktest: . algorithms internal/kit/waittest policy
internal/kit/pgtest: internal/kit/proctest internal/kit/waittest
internal/kit/policytest: algorithms policy
internal/kit/proctest: internal/kit/waittest
internal/kit/redistest: go-redis internal/kit/proctest internal/kit/waittest
internal/kit/referencetest:
internal/kit/waittest:
internal/kit/wiretest:

internal/chaos: admission internal/admission/permits internal/kit/wiretest internal/queue/jet
	internal/queue/job nats.go policy queue
internal/demo: internal/kit/proctest internal/queue/jet internal/queue/job nats.go queue
internal/mutants: internal/kit/waittest
internal/sdktest/recipes:

examples/embedded: . policy workers
examples/grpc: . grpc
examples/limited: . algorithms policy
examples/publisher: nats.go
examples/worker: nats.go workers
`
