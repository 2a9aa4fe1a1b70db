package scripts

import (
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const root = "github.com/penstock-mq/penstock"

var modules = []string{"", "/cmd/penstock", "/outbox"}

type checkout struct {
	t   *testing.T
	dir string
	env []string
}

func (c checkout) run(name string, args ...string) string {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), c.env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		c.t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (c checkout) serve(version string) (proxy string) {
	c.t.Helper()
	proxy = c.t.TempDir()
	nested := []string{"--", "."}
	for file := range strings.Lines(c.run("git", "ls-files", "*/go.mod")) {
		nested = append(nested, ":!"+filepath.Dir(strings.TrimSpace(file)))
	}
	for _, module := range modules {
		dir := strings.TrimPrefix(module, "/")
		tag := strings.TrimPrefix(module+"/"+version, "/")
		at := filepath.Join(proxy, root+module, "@v")
		if err := os.MkdirAll(at, 0o700); err != nil {
			c.t.Fatal(err)
		}
		args := []string{"archive", "--format=zip", "-o", filepath.Join(at, version+".zip"),
			"--prefix=" + root + module + "@" + version + "/", tag + ":" + dir}
		if module == "" {
			args = append(args, nested...)
		}
		c.run("git", args...)
		mod := c.run("git", "show", tag+":"+strings.TrimPrefix(dir+"/go.mod", "/"))
		if strings.Contains(mod, "replace") {
			c.t.Errorf("%s replaces modules:\n%s", tag, mod)
		}
		info := fmt.Sprintf(`{"Version":%q,"Time":"2026-01-02T03:04:05Z"}`, version)
		for name, text := range map[string]string{"list": version, version + ".info": info,
			version + ".mod": mod + "\n"} {
			if err := os.WriteFile(filepath.Join(at, name), []byte(text), 0o600); err != nil {
				c.t.Fatal(err)
			}
		}
	}
	return proxy
}

// TestAReleaseIsInstalledByGo installs programs by "go install" and libraries by "go get", with
// tags in a clone, at the last commit.
func TestAReleaseIsInstalledByGo(t *testing.T) {
	here, err := filepath.Abs("tag")
	if err != nil {
		t.Fatal(err)
	}
	// A constant version uses the build cache for unchanged packages.
	version := fmt.Sprintf("v0.1.0-test.%x", crc32.ChecksumIEEE([]byte(here)))
	clone := checkout{t, t.TempDir(), []string{"GIT_COMMITTER_NAME=test", "GIT_AUTHOR_NAME=test",
		"GIT_COMMITTER_EMAIL=test@example.com", "GIT_AUTHOR_EMAIL=test@example.com"}}
	clone.run("git", "clone", "--quiet", "--shared", filepath.Dir(filepath.Dir(here)), ".")
	want := "cmd/penstock/" + version + "\noutbox/" + version + "\n" + version
	if got := clone.run(here, version); got != want {
		t.Errorf("the tags are\n%s, want\n%s", got, want)
	}
	if got := clone.run("git", "status", "--porcelain"); got != "" {
		t.Errorf("the tags leave changes:\n%s", got)
	}

	goEnv := func(name string) string { return clone.run("go", "env", name) }
	cache := goEnv("GOMODCACHE")
	forget := func() {
		for _, module := range modules {
			for _, begin := range []string{root + module + "@",
				"cache/download/" + root + module + "/@v/"} {
				files, _ := filepath.Glob(cache + "/" + begin + version + "*")
				for _, file := range files {
					if err := os.RemoveAll(file); err != nil {
						t.Error(err)
					}
				}
			}
		}
	}
	forget()
	t.Cleanup(forget)
	user := checkout{t, t.TempDir(), []string{"GOBIN=" + filepath.Join(t.TempDir(), "bin"),
		"GOPROXY=file://" + clone.serve(version) + "," + goEnv("GOPROXY"), "GOWORK=off",
		"GONOSUMDB=" + root + "," + goEnv("GONOSUMDB"),
		"GODEBUG=goindex=0", // go would cache an index of the version's former files
		// Everything is compiled again, only to print its version.
		"GOFLAGS=-modcacherw '-gcflags=" + root + "/...=-N -l' " + goEnv("GOFLAGS")}}
	user.run("go", "install", root+"/cmd/...@"+version)
	user.run("go", "install", root+"/cmd/penstock@"+version,
		root+"/cmd/penstock/penstock-lab@"+version)
	bin := strings.TrimPrefix(user.env[0], "GOBIN=")
	programs, err := os.ReadDir(bin)
	if err != nil || len(programs) != 4 {
		t.Errorf("installed are %v, %v, want four programs", programs, err)
	}
	for _, program := range programs {
		ask := "--version"
		if strings.HasPrefix(program.Name(), "penstock") {
			ask = "version"
		}
		said := user.run(filepath.Join(bin, program.Name()), ask)
		if !strings.Contains(said, strings.TrimPrefix(version, "v")) {
			t.Errorf("%s says it is %s, want %s", program.Name(), said, version)
		}
	}

	user.run("go", "mod", "init", "example.com/user")
	program := fmt.Sprintf("package main\n\nimport (\n_ %q\n_ %q\n)\n\nfunc main() {}\n", root,
		root+"/outbox")
	err = os.WriteFile(filepath.Join(user.dir, "main.go"), []byte(program), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	user.run("go", "get", root+"@"+version, root+"/outbox@"+version)
	user.run("go", "build", "./...")
}
