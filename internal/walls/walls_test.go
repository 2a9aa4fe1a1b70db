// Package walls holds the test of who may import whom.
package walls

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/penstock-mq/penstock"

var version = regexp.MustCompile(`/v[0-9]+$`)

// imports is the map: what the packages of a directory import beside the standard library, tests
// apart. Ours are named by their directory, the root's by a dot, other modules by the last word of
// their path. Whoever adds an arrow adds it here, and says in the commit why it does not point
// upwards.
const imports = `
algorithms:
algorithms/algorithmstest: algorithms
algorithms/memstore: algorithms
algorithms/redisstore: algorithms go-redis
policy: algorithms internal/nearest
queue: algorithms policy nats.go nuid
queue/embedded: internal/seldom policy nats-server nats.go sys
workers: algorithms internal/buildinfo internal/seldom policy queue nats.go sys
workers/httptarget: internal/reach internal/redact policy queue workers
workers/natstarget: internal/redact policy queue workers nats.go
workers/workersprom: workers client_golang
workers/workerstest: algorithms policy queue queue/embedded workers nats.go

admission: algorithms policy queue nats.go
admission/answer: admission internal/seldom policy queue
admission/httpapi: admission admission/answer admission/manage internal/hosts policy queue
admission/limiter: admission algorithms algorithms/memstore policy gobreaker
admission/limiter/inredis: admission/limiter algorithms algorithms/redisstore policy go-redis
admission/manage: admission internal/redact policy queue workers nats.go
admission/natsapi: admission admission/answer queue nats.go

.: admission admission/httpapi admission/limiter admission/manage admission/natsapi
	internal/buildinfo internal/hosts internal/lifecycle internal/natsconn internal/nearest
	internal/seldom internal/targets internal/yamlfile policy queue queue/embedded workers nats.go

config: algorithms internal/nearest internal/yamlfile policy pflag viper
cmd/admitter: . admission/limiter admission/limiter/inredis config internal/buildinfo
	internal/daemon internal/lifecycle internal/telemetry policy queue queue/embedded go-redis
	pflag
cmd/drainer: config internal/daemon internal/hosts internal/lifecycle internal/natsconn
	internal/targets internal/telemetry workers nats.go

internal/buildinfo:
internal/chaos: queue nats.go
internal/daemon: config internal/buildinfo internal/nearest internal/telemetry policy queue pflag
internal/hosts:
internal/lifecycle:
internal/mutants:
internal/natsconn: internal/seldom nats.go
internal/nearest:
internal/proctest:
internal/reach:
internal/redact:
internal/redistest: internal/proctest go-redis
internal/seldom:
internal/targets: internal/reach policy queue workers workers/httptarget workers/natstarget
	nats.go
internal/telemetry: . admission queue workers workers/workersprom client_golang
internal/yamlfile: policy yaml

examples/demo: internal/proctest queue nats.go
examples/embedded: . algorithms policy workers
examples/publisher: nats.go
examples/worker: workers nats.go
`

// never is what some do not import of the standard library, and why: packages, and with a slash
// at the end also those below them.
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
		[]string{"context", "net", "net/", "os", "os/", "sync", "sync/"}, "a rule is arithmetic: no clock and no I/O",
	},
	{
		coreFile, []string{"context", "net", "net/", "os", "os/", "sync", "sync/"},
		"the core decides: events in, actions out",
	},
}

func anyFile(string) bool { return true }

// core are the files of the core, which has no room of its own yet.
const core = `actions breaker bucket checkpoint claims clock control core fit forecast heap lease limits
	outages ownership record settle stopping takeover tenure valve walk`

func coreFile(file string) bool {
	name := strings.TrimSuffix(path.Base(file), ".go")
	return path.Dir(file) == "workers" && slices.Contains(strings.Fields(core), name)
}

// sources are the files of this module that others compile: by their path in it, what they import.
func sources(t *testing.T) map[string][]string {
	t.Helper()
	root := os.DirFS("../..")
	files := map[string][]string{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (name == "bench" || name == "bin" || name != "." && name[0] == '.'):
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

// modules are those that go.mod requires, with the last word of their path that is no version.
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

// within reports whether a package is another one or below it.
func within(name, other string) bool { return name == other || strings.HasPrefix(name, other+"/") }

func TestPackagesImportWhatTheMapSays(t *testing.T) {
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

func TestNobodyImportsWhatIsNotForHim(t *testing.T) {
	for file, paths := range sources(t) {
		for _, rule := range never {
			for _, imported := range paths {
				denied := func(name string) bool {
					return imported == name || name[len(name)-1] == '/' && strings.HasPrefix(imported, name)
				}
				if rule.files(file) && slices.ContainsFunc(rule.imports, denied) {
					t.Errorf("%s imports %s: %s", file, imported, rule.why)
				}
			}
		}
	}
}
