// Package scripts tests the scripts of its directory.
package scripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// machine is a directory of tools, the only ones on PATH. Package managers record their arguments.
type machine struct {
	t          *testing.T
	bin, notes string
}

func fresh(t *testing.T) machine {
	m := machine{t: t, bin: t.TempDir(), notes: filepath.Join(t.TempDir(), "notes")}
	m.tool("go", `echo "no-such-compiler"`)
	m.tool("uname", "echo Linux")
	m.tool("id", "echo 1000")
	m.link("sh")
	return m
}

func (m machine) tool(name, script string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/sh\n"+script+"\n"),
		0o755); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) link(name string) {
	m.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.Symlink(path, filepath.Join(m.bin, name)); err != nil {
		m.t.Fatal(err)
	}
}

func (m machine) packages(manager string) {
	m.t.Helper()
	m.tool(manager, `echo "`+manager+` $*" >> `+m.notes)
}

func (m machine) setup() (status int, said, installed string) {
	m.t.Helper()
	cmd := exec.Command("./setup")
	cmd.Env = []string{"PATH=" + m.bin}
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if err != nil && !errors.As(err, &failed) {
		m.t.Fatal(err)
	}
	notes, err := os.ReadFile(m.notes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		m.t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out), string(notes)
}

func TestSetupDoesNothingWhereNothingIsMissing(t *testing.T) {
	m := fresh(t)
	m.tool("go", "echo compiler -x")
	m.tool("compiler", "exit 0")
	m.tool("redis-server", "exit 1")
	m.tool("python3", "exit 1")
	m.tool("chromium", "exit 1")
	m.tool("initdb", "exit 1")
	m.tool("npm", "exit 1")
	m.packages("apt-get")
	if status, said, installed := m.setup(); status != 0 || said != "" || installed != "" {
		t.Errorf("status %d, %q, installed %q", status, said, installed)
	}
}

func TestSetupInstallsMissingTools(t *testing.T) {
	root := func(m machine) { m.tool("id", "echo 0") }
	sudo := func(m machine) { m.tool("sudo", `[ "$1" = -n ] && shift; exec "$@"`) }
	tests := map[string]struct {
		manager   string
		rights    func(machine)
		installed string
	}{
		"apt-get by root": {"apt-get", root,
			"apt-get update\napt-get install -y --no-install-recommends gcc libc6-dev " +
				"redis-server python3 chromium postgresql nodejs npm\n"},
		"apt-get by sudo": {"apt-get", sudo,
			"apt-get update\napt-get install -y --no-install-recommends gcc libc6-dev " +
				"redis-server python3 chromium postgresql nodejs npm\n"},
		"apk by root": {"apk", root,
			"apk add --no-cache gcc musl-dev redis python3 chromium postgresql nodejs npm\n"},
		"brew by any": {"brew", func(m machine) {
			m.tool("uname", "echo Darwin")
		}, "brew install redis python3 chromium postgresql node\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := fresh(t)
			m.packages(test.manager)
			test.rights(m)
			if status, said, installed := m.setup(); status != 0 || installed != test.installed {
				t.Errorf("status %d, installed %q, want %q\n%s", status, installed, test.installed,
					said)
			}
		})
	}
}

func TestSetupPrintsTheCommandWithoutRoot(t *testing.T) {
	tests := map[string]struct {
		sudo, want string
	}{
		"without sudo":          {"", "sudo sh -c 'apt-get update && "},
		"sudo wants a password": {"exit 1", "sudo sh -c 'apt-get update && "},
		"the installation failed": {`[ "$*" = "-n sh -c :" ]`,
			"apt-get install -y --no-install-recommends redis-server'\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := fresh(t)
			m.tool("go", "echo compiler")
			m.tool("compiler", "exit 0")
			m.tool("python3", "exit 1")
			m.tool("chromium", "exit 1")
			m.tool("initdb", "exit 1")
			m.tool("npm", "exit 1")
			m.packages("apt-get")
			if test.sudo != "" {
				m.tool("sudo", test.sudo)
			}
			status, said, installed := m.setup()
			if status != 1 || installed != "" || !strings.Contains(said, "need redis-server. ") ||
				!strings.Contains(said, test.want) {
				t.Errorf("status %d, installed %q:\n%s", status, installed, said)
			}
		})
	}
}

func TestSetupPrintsMissingToolsWithoutAPackageManager(t *testing.T) {
	m := fresh(t)
	if status, said, _ := m.setup(); status != 1 ||
		!strings.Contains(said, "a C compiler, redis-server, python3") {
		t.Errorf("status %d:\n%s", status, said)
	}
	if err := os.Remove(filepath.Join(m.bin, "go")); err != nil {
		t.Fatal(err)
	}
	if status, said, _ := m.setup(); status != 1 || !strings.Contains(said, "Go 1.26") {
		t.Errorf("status %d:\n%s", status, said)
	}
}
