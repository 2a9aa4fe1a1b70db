package deploytest

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/module"
	modzip "golang.org/x/mod/zip"
)

// tracked is a file of the module.
type tracked struct{ path string }

func (f tracked) Path() string                 { return f.path }
func (f tracked) Lstat() (fs.FileInfo, error)  { return os.Lstat("../../" + f.path) }
func (f tracked) Open() (io.ReadCloser, error) { return os.Open("../../" + f.path) }

// TestProgramsAreInstalledByTheirPath publishes the module in a proxy of files, as a tag does at
// proxy.golang.org, and installs each program by its path and a version: a go.mod with a replace
// directive, or a program in a module of its own, would fail.
func TestProgramsAreInstalledByTheirPath(t *testing.T) {
	const path, version = "github.com/penstock-mq/penstock", "v0.0.1"
	list := exec.Command("git", "-C", "../..", "ls-files", "--cached", "--others",
		"--exclude-standard", "-z")
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	var files []modzip.File
	for name := range strings.SplitSeq(strings.Trim(string(names), "\x00"), "\x00") {
		if _, err := os.Lstat("../../" + name); err == nil { // not deleted since
			files = append(files, tracked{name})
		}
	}
	dir := t.TempDir()
	proxy := filepath.Join(dir, "proxy", path, "@v")
	var archive bytes.Buffer
	err = modzip.Create(&archive, module.Version{Path: path, Version: version}, files)
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(proxy, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"list": []byte(version + "\n"),
		version + ".info": []byte(`{"Version": "` + version + `"}`), version + ".mod": mod,
		version + ".zip": archive.Bytes()} {
		if err := os.WriteFile(filepath.Join(proxy, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	upstream, err := exec.Command("go", "env", "GOPROXY", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	from, cache, _ := strings.Cut(strings.TrimSpace(string(upstream)), "\n")
	// The files of the modules that it needs are there already; its own are for this test alone.
	environ := append(os.Environ(), "GOFLAGS=-modcacherw", "GOBIN="+filepath.Join(dir, "bin"),
		"GOMODCACHE="+filepath.Join(dir, "modules"), "GONOSUMDB="+path,
		"GOPROXY=file://"+filepath.Join(dir, "proxy")+",file://"+
			filepath.Join(cache, "cache/download")+","+from)
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute)
	defer cancel()
	for _, program := range []string{"admitter", "drainer", "penstock"} {
		install := exec.CommandContext(ctx, "go", "install", path+"/cmd/"+program+"@latest")
		install.Dir, install.Env = dir, environ
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", install, err, out)
		}
		out, err := exec.CommandContext(ctx, filepath.Join(dir, "bin", program),
			"--version").Output()
		if err != nil || !strings.Contains(string(out), version[1:]) {
			t.Errorf("%s --version: %q, %v", program, out, err)
		}
	}
}
