package deploytest

import (
	"archive/tar"
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

// TestAReleaseIsAllThatIsNeeded makes a release for one platform, and installs from its directory
// alone.
func TestAReleaseIsAllThatIsNeeded(t *testing.T) {
	out := t.TempDir()
	cmd := exec.Command("../../scripts/release")
	cmd.Env = append(os.Environ(), "OUT="+out, "PLATFORMS=linux/amd64")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	summed := checkSums(t, out)
	one := func(pattern string) string {
		t.Helper()
		found, err := filepath.Glob(filepath.Join(out, pattern))
		if err != nil || len(found) != 1 || !summed[filepath.Base(found[0])] {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		return found[0]
	}
	t.Run("archive", func(t *testing.T) { archive(t, one("penstock-*-linux-amd64.tar.gz")) })
	t.Run("image", func(t *testing.T) { image(t, one("*-image.tar")) })
	t.Run("chart", func(t *testing.T) {
		chart, err := loader.Load(one("penstock-[0-9]*.tgz"))
		if err != nil || chart.Metadata.AppVersion == "latest" || len(chart.Templates) == 0 {
			t.Errorf("%v, %+v", err, chart)
		}
	})
	t.Run("wheel", func(t *testing.T) {
		venv := t.TempDir()
		run(t, venv, "python3", "-m", "venv", venv)
		run(t, venv, "bin/pip", "install", "--quiet", "--no-index", one("*.whl"))
		run(t, venv, "bin/python", "-c", "import penstock; penstock.Client")
		one("penstock_client-*.tar.gz")
	})
	t.Run("npm", func(t *testing.T) {
		listed := run(t, out, "tar", "-tzf", one("penstock-mq-client-*.tgz"))
		for _, name := range []string{"package/dist/index.js", "package/dist/index.d.ts"} {
			if !strings.Contains(listed, name) {
				t.Errorf("%s is missing in\n%s", name, listed)
			}
		}
	})
	for _, pattern := range []string{"penstock-*-client.cdx.json", "penstock-*[!t].cdx.json"} {
		one(pattern)
	}
}

func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	if strings.Contains(name, "/") {
		name = filepath.Join(dir, name)
	}
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, text)
	}
	return string(text)
}

// checkSums returns the files that SHA256SUMS lists, and compares their sums.
func checkSums(t *testing.T, dir string) map[string]bool {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	summed := map[string]bool{}
	for lines := bufio.NewScanner(bytes.NewReader(list)); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || fmt.Sprintf("%x", sha256.Sum256(data)) != sum {
			t.Errorf("%s: %v, or another sum", name, err)
		}
		summed[filepath.Base(name)] = true
	}
	return summed
}

// archive runs the programs of an archive in an empty directory, as README's first commands do.
func archive(t *testing.T, file string) {
	dir := t.TempDir()
	run(t, dir, "tar", "-xzf", file, "--strip-components=1")
	for _, name := range []string{"admitter", "drainer", "penstock", "penstock-lab"} {
		if said := run(t, dir, "./"+name, "--version"); !strings.Contains(said, name) {
			t.Errorf("%s --version says %q", name, said)
		}
	}
	cmd := exec.Command(filepath.Join(dir, "admitter"), "--drain", "--echo", "127.0.0.1:8081",
		"--http-listen", "127.0.0.1:0", "--nats-dir", filepath.Join(dir, "data"), "--config",
		filepath.Join(dir, "deploy/quickstart.yaml"))
	said, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}()
	for lines := bufio.NewScanner(said); lines.Scan(); {
		_, rest, ready := strings.Cut(lines.Text(), "ready ")
		if !ready {
			continue
		}
		_, at, _ := strings.Cut(rest, "http=")
		at, _, _ = strings.Cut(at, " ")
		said := run(t, dir, "./penstock", "--server", "http://"+at, "policies", "ls")
		if !strings.Contains(said, "demo") {
			t.Errorf("the policies are %s", said)
		}
		return
	}
	t.Error("the admitter did not get ready")
}

// image looks into an image for docker load.
func image(t *testing.T, file string) {
	parts := untarred(t, file)
	var manifest []struct {
		Config           string
		RepoTags, Layers []string
	}
	var config struct {
		Architecture, OS string
		Config           struct {
			User, WorkingDir string
			Entrypoint       []string
		}
	}
	err := json.Unmarshal(parts["manifest.json"], &manifest)
	if err != nil || len(manifest) != 1 || len(manifest[0].RepoTags) != 1 ||
		!strings.HasPrefix(manifest[0].RepoTags[0], "penstock:") {
		t.Fatalf("%v, %+v", err, manifest)
	}
	err = json.Unmarshal(parts[manifest[0].Config], &config)
	c := config.Config
	if err != nil || config.OS+"/"+config.Architecture != "linux/amd64" ||
		c.User != "65532:65532" || c.WorkingDir != "/var/lib/penstock" ||
		!slices.Equal(c.Entrypoint, []string{"/usr/local/bin/admitter"}) {
		t.Errorf("%v, %+v", err, config)
	}
	layer := filepath.Join(t.TempDir(), "layer.tar.gz")
	if err := os.WriteFile(layer, parts[manifest[0].Layers[0]], 0o600); err != nil {
		t.Fatal(err)
	}
	listed := run(t, filepath.Dir(layer), "tar", "--numeric-owner", "-tvzf", layer)
	for _, part := range []string{"0/0", "65532/65532", "usr/local/bin/admitter",
		"var/lib/penstock/", "etc/ssl/certs/ca-certificates.crt"} {
		if !strings.Contains(listed, part) {
			t.Errorf("%s is missing in\n%s", part, listed)
		}
	}
}

func untarred(t *testing.T, file string) map[string][]byte {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parts := map[string][]byte{}
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if err == io.EOF {
			return parts
		}
		if err != nil {
			t.Fatal(err)
		}
		if parts[strings.TrimPrefix(h.Name, "./")], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}
