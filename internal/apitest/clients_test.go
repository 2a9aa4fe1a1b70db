package apitest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	// The generated packages need these.
	_ "github.com/go-faster/errors"
	_ "github.com/go-faster/jx"
	_ "github.com/oapi-codegen/runtime"
	_ "github.com/ogen-go/ogen/middleware"
	_ "github.com/ogen-go/ogen/otelogen"
	_ "go.opentelemetry.io/otel"
	_ "go.opentelemetry.io/otel/codes"
	_ "go.opentelemetry.io/otel/metric"
	_ "go.opentelemetry.io/otel/semconv/v1.39.0"
	_ "go.opentelemetry.io/otel/trace"

	"github.com/penstock-mq/penstock"
)

func TestAGoClientIsGenerated(t *testing.T) {
	url, dir := clientsServer(t), filepath.Join(t.TempDir(), "api")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	output(t, ".", "go", "tool", "oapi-codegen", "-package", "api", "-generate", "types,client",
		"-o", filepath.Join(dir, "api.go"), documentFile)
	said(t, runGenerated(t, "generated", "testdata/client.go", dir, url), "batch 200 2")
}

func TestAnOgenClientIsGenerated(t *testing.T) {
	url, dir := clientsServer(t), filepath.Join(t.TempDir(), "api")
	output(t, ".", "go", "tool", "ogen", "--config", "testdata/ogen.yml", "--target", dir,
		"--package", "api", documentFile)
	said(t, runGenerated(t, "ogen", "testdata/ogen.go", dir, url), "")
}

// runGenerated runs a program with the package that was generated in dir, without writing to the
// tree.
func runGenerated(t *testing.T, name, program, dir, url string) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{filepath.Join(here, name, "main.go"): filepath.Join(here, program)}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		replace[filepath.Join(here, name, "api", f.Name())] = filepath.Join(dir, f.Name())
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return output(t, ".", "go", "run", "-overlay", file, "./"+name, url, allowed)
}

// TestATypeScriptClientIsGenerated uses the ecosystem's tools, including a linter of the
// description.
func TestATypeScriptClientIsGenerated(t *testing.T) {
	url, dir := clientsServer(t), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/typescript")); err != nil {
		t.Fatal(err)
	}
	description, err := filepath.Abs("../../api/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	output(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	if out := output(t, dir, "npx", "redocly", "lint", "--format", "json", description); !strings.
		Contains(out, `"problems": []`) {
		t.Errorf("redocly finds\n%s", out)
	}
	output(t, dir, "npx", "openapi-typescript", description, "-o", "api.d.ts")
	output(t, dir, "npx", "tsc")
	said(t, output(t, dir, "node", "client.js", url, allowed), "batch 200 2")
}

func TestAnOrvalClientIsGenerated(t *testing.T) {
	url, dir := clientsServer(t), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/orval")); err != nil {
		t.Fatal(err)
	}
	description, err := filepath.Abs(documentFile)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DESCRIPTION", description)
	output(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	output(t, dir, "npx", "orval")
	output(t, dir, "npx", "tsc")
	said(t, output(t, dir, "node", "client.js", url, allowed), "batch 200 2")
}

func clientsServer(t *testing.T) (url string) {
	t.Helper()
	s := start(t, nil, nil, penstock.Options{})
	return s.url
}

// said compares the output of a client that makes all calls, or none of a batch.
func said(t *testing.T, out, batch string) {
	t.Helper()
	want := `put 201 leaking_bucket
submit 202 queued
job a/b c hello
` + batch + `
missing 404 Not Found
`
	want = strings.ReplaceAll(want, "\n\n", "\n")
	if out != want {
		t.Errorf("the client says\n%s\nwant\n%s", out, want)
	}
}

func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "REDOCLY_TELEMETRY=off", "REDOCLY_SUPPRESS_UPDATE_NOTICE=true")
	var wrong strings.Builder
	c.Stderr = &wrong
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", c, err, out, wrong.String())
	}
	return string(out)
}
