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
