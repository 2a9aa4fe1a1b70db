// Package walls tests the imports of all packages.
package walls

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/penstock-mq/penstock"

var version = regexp.MustCompile(`/v[0-9]+$`)

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

// never lists forbidden packages of the standard library (with a slash at the end, also those
// below), with the reason.
var never = []struct {
	files   func(file string) bool
	imports []string
	why     string
}{
	{anyFile, []string{"log"}, "logs go to the log/slog.Logger that is passed in"},
	{
		func(file string) bool { return !strings.HasSuffix(path.Dir(file), "test") },
		[]string{"testing"}, "programs of others would link it",
	},
	{
		func(file string) bool { return path.Dir(file) == "algorithms" },
		[]string{"context", "net", "net/", "os", "os/", "sync", "sync/"},
		"a rule is arithmetic: no clock and no I/O",
	},
	{
		pure,
		[]string{"context", "net", "net/", "os", "os/"}, "the core decides: events in, actions out",
	},
	{
		func(file string) bool { return pure(file) && path.Base(file) != "ticket.go" },
		[]string{"sync", "sync/"}, "only the last check before a start runs beside the core",
	},
}

func anyFile(string) bool { return true }

const core = "workers/internal/core"

func pure(file string) bool {
	dir := path.Dir(file)
	return dir == core || dir == "workers/internal/valve"
}

var others = map[string]bool{"bench": true, "cmd/penstock": true, "internal/consoletest": true}

func sources(t *testing.T) map[string][]string {
	t.Helper()
	root := os.DirFS("../..")
	files := map[string][]string{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (others[name] || name == "bin" ||
			entry.Name() == "testdata" || name != "." && name[0] == '.'):
			return fs.SkipDir
		case !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		files[name] = nil
		for _, imported := range file.Imports {
			imports, err := strconv.Unquote(imported.Path.Value)
			if err != nil {
				return err
			}
			files[name] = append(files[name], imports)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// modules returns the modules that go.mod requires, by the last word of their path that is no
// version.
func modules(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && strings.Contains(words[0], ".") {
			names[words[0]] = path.Base(version.ReplaceAllString(words[0], ""))
		}
	}
	return names
}

func within(name, other string) bool { return name == other || strings.HasPrefix(name, other+"/") }

func TestImportsMatchTheMap(t *testing.T) {
	want := map[string][]string{}
	var dir string
	for line := range strings.Lines(strings.TrimSpace(imports)) {
		if names, all, begins := strings.Cut(line, ":"); begins {
			dir, line = names, all
			want[dir] = nil
		}
		want[dir] = append(want[dir], strings.Fields(line)...)
	}
	required := modules(t)
	got := map[string][]string{}
	for file, paths := range sources(t) {
		dir := path.Dir(file)
		got[dir] = append(got[dir], nil...)
		for _, imported := range paths {
			if own, ok := strings.CutPrefix(imported+"/", module+"/"); ok {
				got[dir] = append(got[dir], path.Clean(own))
			}
			for name, short := range required {
				if within(imported, name) {
					got[dir] = append(got[dir], short)
				}
			}
		}
	}
	for dir, names := range got {
		slices.Sort(names)
		names = slices.Compact(names)
		slices.Sort(want[dir])
		if mapped, ok := want[dir]; !ok || !slices.Equal(names, mapped) {
			t.Errorf("%s imports %q, and the map says %q", dir, names, mapped)
		}
		delete(want, dir)
	}
	for dir := range want {
		t.Errorf("%s is on the map and not there", dir)
	}
}

func TestInternalPackagesAreImportedAsAllowed(t *testing.T) {
	for file, paths := range sources(t) {
		for _, rule := range never {
			for _, imported := range paths {
				denied := func(name string) bool {
					return imported == name ||
						name[len(name)-1] == '/' && strings.HasPrefix(imported, name)
				}
				if rule.files(file) && slices.ContainsFunc(rule.imports, denied) {
					t.Errorf("%s imports %s: %s", file, imported, rule.why)
				}
			}
		}
	}
}

func dependencies(t *testing.T, of ...string) []string {
	t.Helper()
	list := exec.Command("go", append([]string{"list", "-deps"}, of...)...)
	list.Dir = "../.."
	text, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text))
}

var libraries = []string{".", "./workers/httptarget", "./workers/natstarget", "./workers",
	"./workers/workerstest", "./queue/...", "./policy/...", "./algorithms/...", "./admission/..."}

// Libraries do not link dependencies of the programs.
func TestLibrariesBringNeitherTelemetryNorRPC(t *testing.T) {
	for _, imported := range dependencies(t, libraries...) {
		for _, heavy := range []string{"opentelemetry.io", "google.golang.org/", "prometheus",
			"coreos", "spf13/viper"} {
			if strings.Contains(imported, heavy) {
				t.Errorf("the libraries depend on %s", imported)
			}
		}
	}
}

// The command line is a client of the API: it knows its documents, and no server.
func TestTheCommandLineReachesLittleOfOurCode(t *testing.T) {
	const most = 8000 // lines
	list := exec.Command("go", "list", "-deps", "-f",
		`{{$at := .Dir}}{{range .GoFiles}}{{$at}}/{{.}} {{$.ImportPath}}{{"\n"}}{{end}}`, ".")
	list.Dir = "../../cmd/penstock"
	text, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for of := range strings.Lines(string(text)) {
		file, name, _ := strings.Cut(strings.TrimSpace(of), " ")
		if !within(name, module) {
			continue
		}
		for _, server := range []string{"admission", "queue", "workers"} {
			if within(name, module+"/"+server) {
				t.Errorf("it reaches %s", name)
			}
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += strings.Count(string(source), "\n")
	}
	if lines == 0 || lines > most {
		t.Errorf("it reaches %d lines, want at most %d", lines, most)
	}
	t.Logf("%d lines", lines)
}

// "go mod tidy" in a program also looks at the tests of all packages that it imports, directly or
// not. gRPC's packages need google.golang.org/genproto/googleapis/rpc, which old versions of
// google.golang.org/genproto contain as well: then tidy ends in "ambiguous import".
func TestTestsOfLibrariesDoNotUseRPC(t *testing.T) {
	own := slices.DeleteFunc(dependencies(t, libraries...), func(name string) bool {
		return !within(name, module)
	})
	for _, imported := range dependencies(t, append([]string{"-test"}, own...)...) {
		if within(imported, "google.golang.org/genproto") {
			t.Errorf("tests of the libraries depend on %s", imported)
		}
	}
}

// The libraries that the product is built on, each with a program that uses it.
func TestTheProgramsUseTheNamedLibraries(t *testing.T) {
	const nats, server, redis, viper = "github.com/nats-io/nats.go",
		"github.com/nats-io/nats-server/v2/server", "github.com/redis/go-redis/v9",
		"github.com/spf13/viper"
	required := modules(t)
	for program, libraries := range map[string][]string{
		"./cmd/admitter": {nats, server, redis, viper}, "./cmd/drainer": {nats, viper}} {

		linked := dependencies(t, program)
		for _, library := range libraries {
			if required[strings.TrimSuffix(library, "/server")] == "" {
				t.Errorf("go.mod does not require %s", library)
			}
			if !slices.Contains(linked, library) {
				t.Errorf("%s does not use %s", program, library)
			}
		}
	}
}

// Settings of the servers come from viper, so that a variable means the same everywhere.
func TestProgramsReadNoVariablesThemselves(t *testing.T) {
	for _, dir := range []string{"config", "cmd/admitter", "cmd/drainer",
		"internal/server/daemon"} {
		look := func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") ||
				strings.HasSuffix(name, "_test.go") {
				return err
			}
			text, err := os.ReadFile("../../" + name)
			if found := getenv.Find(text); found != nil {
				t.Errorf("%s calls %s", name, found)
			}
			return err
		}
		err := fs.WalkDir(os.DirFS("../.."), dir, look)
		if err != nil {
			t.Fatal(err)
		}
	}
}

var getenv = regexp.MustCompile(`\b(os|syscall)\.(Getenv|LookupEnv|ExpandEnv)`)

// A core that could reach the network could do I/O during a decision, unseen by the simulation. It
// includes the valves.
func TestTheCoreCannotReachTheNetwork(t *testing.T) {
	list := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{.Path}}{{end}} {{.ImportPath}} {{join .Imports \" \"}}", "./"+core)
	list.Dir = "../.."
	text, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		switch from, imports, _ := strings.Cut(line, " "); from {
		case module:
			for _, imported := range strings.Fields(imports)[1:] {
				if slices.Contains([]string{"context", "net", "net/http"}, imported) {
					t.Errorf("the core reaches an import of %s: %s", imported, imports)
				}
			}
		case "", "go.yaml.in/yaml/v3", "github.com/go-viper/mapstructure/v2": // of policy's Parse
		default:
			t.Errorf("the core depends on %s", from)
		}
	}
}
