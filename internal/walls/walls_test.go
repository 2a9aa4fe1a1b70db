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
api:
algorithms:
algorithms/algorithmstest: algorithms
algorithms/memstore: algorithms
algorithms/redisstore: algorithms go-redis
policy: algorithms api internal/base/decode internal/base/nearest internal/base/strict internal/base/zones
outbox: . admission internal/base/seldom queue/job
policy/store: internal/base/errs policy queue queue/job queue/kv
queue: api internal/base/cron internal/base/errs internal/server/installation internal/server/natsconn internal/base/zones policy queue/internal/jsapi queue/job queue/kv nats.go
queue/backup: queue queue/internal/jsapi nats.go
queue/claims: queue/job nats.go
queue/embedded: internal/base/seldom policy queue/roles nats-server nats.go nkeys sys
queue/internal/jsapi: internal/server/natsconn queue/job nats.go nuid
queue/job: api algorithms policy
queue/roles: policy
queue/kv: internal/base/errs queue/internal/jsapi queue/job nats.go
workers: api internal/base/buildinfo internal/base/container internal/base/files internal/server/installation internal/base/notice internal/base/seldom policy policy/store
	queue queue/claims queue/job queue/kv workers/internal/alarm workers/internal/core workers/internal/crew
	workers/internal/handle workers/internal/pace workers/internal/record
	workers/internal/timepiece workers/internal/valve nats.go
workers/audit: algorithms policy policy/store queue queue/job
workers/httptarget: internal/base/answers internal/base/clienttls internal/base/files internal/server/follow internal/base/oneshot internal/base/reach internal/base/redact policy queue/job workers
	oauth2
workers/internal/adapt:
workers/internal/alarm: workers/internal/pace sys
workers/internal/calls: queue/job workers/internal/claimant workers/internal/pace workers/internal/quota workers/internal/record
workers/internal/claimant: queue/job workers/internal/heap workers/internal/pace workers/internal/quota workers/internal/record
workers/internal/core: api policy queue/job workers/internal/crew workers/internal/handle workers/internal/inheritance workers/internal/pace
	workers/internal/record workers/internal/valve
workers/internal/crew: queue/job workers/internal/claimant workers/internal/gates workers/internal/pace
workers/internal/deep:
workers/internal/forecast:
workers/internal/gates: policy queue/job workers/internal/pace workers/internal/quota
workers/internal/handle: queue/job workers/internal/record
workers/internal/heap:
workers/internal/inheritance: queue/job workers/internal/pace workers/internal/quota workers/internal/record
workers/internal/keyqueue: queue/job workers/internal/deep workers/internal/heap workers/internal/pace
workers/internal/pace: algorithms policy
workers/internal/pace/pacetest: policy
workers/internal/quota: algorithms policy
workers/internal/record: queue/job
workers/internal/timepiece: workers/internal/pace sys
workers/internal/valve: api policy queue/job workers/internal/adapt workers/internal/calls workers/internal/claimant workers/internal/crew workers/internal/deep
	workers/internal/forecast workers/internal/gates workers/internal/handle workers/internal/heap workers/internal/inheritance
	workers/internal/keyqueue
	workers/internal/pace workers/internal/quota workers/internal/record workers/internal/walk
workers/internal/walk:
workers/whatif: admission admission/limiter policy queue/job workers/internal/handle workers/internal/heap
	workers/internal/pace workers/internal/record workers/internal/valve
workers/natstarget: internal/base/answers internal/base/redact policy queue queue/job workers nats.go
workers/workersprom: internal/server/promsink queue workers client_golang
workers/workerstest: algorithms policy policy/store queue queue/embedded queue/job workers
	workers/audit nats.go

admission: admission/access algorithms internal/base/container policy queue queue/job nats.go
admission/access: api internal/server/hosts internal/base/nearest internal/base/strict
admission/answer: api admission admission/permits internal/base/seldom policy queue queue/job nats.go
admission/console:
admission/httpapi: api admission admission/access admission/answer admission/manage admission/permits admission/schedules admission/watch internal/server/health
	internal/server/hosts internal/base/nearest algorithms
	policy queue queue/job
admission/limiter: admission algorithms algorithms/memstore internal/base/container policy queue gobreaker
admission/limiter/inredis: admission/limiter algorithms algorithms/redisstore policy go-redis
admission/manage: api admission admission/watch algorithms internal/base/redact policy policy/store queue queue/job workers workers/audit nats.go
admission/outbound: admission admission/access admission/permits internal/base/answers internal/base/clienttls internal/base/files internal/base/nearest internal/base/oneshot policy queue/job workers/httptarget brotli
	compress
admission/permits: admission internal/base/answers internal/base/clienttls internal/base/files internal/base/oneshot policy queue queue/claims queue/job nats.go
admission/schedules: api admission algorithms internal/base/cron internal/base/nearest internal/base/zones policy queue queue/job nats.go
admission/watch: api admission queue queue/job
admission/natsapi: admission admission/answer admission/manage queue queue/job nats.go

.: admission admission/answer admission/httpapi admission/limiter admission/permits admission/schedules algorithms
	internal/server/door internal/server/follow internal/server/guard internal/server/health internal/server/hosts internal/server/installation
	internal/server/lifecycle internal/server/natsconn internal/server/node internal/server/policyfile internal/server/targets
	policy policy/store queue queue/embedded queue/job queue/kv workers workers/audit nats.go

config: admission/outbound admission/schedules algorithms internal/server/guard internal/server/installation internal/server/lifecycle
	internal/base/decode internal/server/natsconn internal/base/nearest internal/server/policyfile internal/base/reach internal/base/strict policy pflag viper
cmd/admitter: . admission/access admission/outbound admission/limiter admission/limiter/inredis config
	internal/base/buildinfo internal/base/clienttls internal/server/daemon internal/server/envoy internal/server/follow internal/server/guard internal/server/health internal/server/lifecycle
	internal/base/notice internal/server/telemetry internal/server/tracing policy queue queue/backup queue/embedded queue/job nats.go go-redis nkeys pflag
cmd/drainer: admission admission/httpapi config internal/server/daemon internal/server/follow internal/server/guard internal/server/health internal/server/hosts
	internal/server/lifecycle internal/server/natsconn
	internal/server/targets internal/server/telemetry internal/server/tracing workers nats.go

internal/kit/answertest: internal/kit/waittest policy queue workers workers/workerstest
internal/base/answers: internal/base/hints policy
internal/kit/brokertest: internal/kit/natstest policy policy/store queue queue/embedded nats.go
internal/base/buildinfo:
internal/base/container:
internal/kit/certtest:
internal/kit/h2test: internal/kit/certtest
internal/base/clienttls: internal/server/follow
internal/chaos: admission admission/permits internal/kit/wiretest policy queue queue/job nats.go
internal/base/cron:
internal/server/daemon: admission/access config internal/base/buildinfo internal/base/container internal/base/files internal/server/follow internal/server/guard internal/server/hosts
	internal/base/strict queue/embedded
	internal/base/nearest internal/server/openid internal/server/telemetry policy queue workers pflag
internal/demo: internal/kit/proctest queue queue/job nats.go
internal/server/envoy: admission admission/access algorithms internal/server/guard internal/server/lifecycle internal/base/nearest internal/base/strict
	policy queue queue/job envoy grpc protobuf
internal/base/errs:
internal/base/files: sys
internal/server/follow: internal/server/health
internal/server/guard: admission/access internal/server/follow internal/server/hosts internal/server/lifecycle
internal/server/health: api
internal/base/hints: httpsfv
internal/server/hosts:
internal/server/installation:
internal/server/lifecycle:
internal/mutants: internal/kit/waittest
internal/server/natsconn: internal/base/seldom nats.go
internal/kit/natstest: internal/kit/waittest queue/embedded nats-server nats.go
internal/base/nearest:
internal/server/door: admission admission/console admission/httpapi admission/manage admission/natsapi admission/permits
	admission/schedules admission/watch internal/base/buildinfo internal/server/guard internal/server/lifecycle internal/server/targets
	policy queue queue/job workers/audit nats.go
internal/server/node: api admission/schedules internal/base/files internal/server/health internal/server/lifecycle internal/server/natsconn internal/base/notice internal/base/seldom
	policy policy/store queue queue/embedded queue/job queue/kv nats.go
internal/base/notice:
internal/base/oneshot: sys
internal/server/openid: admission/access internal/base/clienttls go-oidc
internal/server/promsink: queue client_golang
internal/kit/overlaptest: internal/kit/waittest
internal/kit/penstocktest: . algorithms internal/kit/waittest policy
internal/kit/pgtest: internal/kit/proctest internal/kit/waittest
internal/server/policyfile: internal/base/nearest internal/base/strict policy
internal/kit/policytest: algorithms policy
internal/kit/proctest: internal/kit/waittest
internal/base/reach:
internal/base/redact:
internal/kit/referencetest:
internal/kit/redistest: internal/kit/proctest internal/kit/waittest go-redis
internal/sdktest/recipes:
internal/base/seldom:
internal/base/decode: algorithms internal/base/nearest mapstructure yaml
internal/base/strict: internal/base/decode internal/base/nearest yaml
internal/server/targets: internal/base/reach policy workers workers/httptarget workers/natstarget nats.go
internal/server/tracing: admission internal/base/buildinfo internal/base/seldom queue/job workers nats.go otel
	otlptrace otlptracehttp sdk trace
internal/server/telemetry: internal/server/promsink policy policy/store queue workers/audit workers/workersprom
	client_golang
internal/kit/waittest:
internal/kit/wiretest:
internal/base/zones: internal/base/nearest

examples/embedded: . policy workers
examples/grpc: . admission/permits grpc
examples/limited: . algorithms policy
examples/publisher: nats.go
examples/worker: workers nats.go
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
