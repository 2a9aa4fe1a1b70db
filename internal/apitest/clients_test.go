package apitest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/oapi-codegen/runtime"

	"github.com/penstock-mq/penstock"
)

func TestAGoClientIsGenerated(t *testing.T) {
	url, dir := clientsServer(t), t.TempDir()
	generated := filepath.Join(dir, "api.go")
	output(t, ".", "go", "tool", "oapi-codegen", "-package", "api", "-generate", "types,client",
		"-o", generated, "../../admission/httpapi/openapi.yaml")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(here, "generated/main.go"):    filepath.Join(here, "testdata/client.go"),
		filepath.Join(here, "generated/api/api.go"): generated,
	}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	said(t, output(t, ".", "go", "run", "-overlay", file, "./generated", url, allowed))
}

// TestATypeScriptClientIsGenerated uses the ecosystem's tools, including a linter of the
// description.
func TestATypeScriptClientIsGenerated(t *testing.T) {
	url, dir := clientsServer(t), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata/typescript")); err != nil {
		t.Fatal(err)
	}
	description, err := filepath.Abs("../../admission/httpapi/openapi.yaml")
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
	said(t, output(t, dir, "node", "client.js", url, allowed))
}

func clientsServer(t *testing.T) (url string) {
	t.Helper()
	s := start(t, nil, nil, penstock.Options{})
	return s.url
}

func said(t *testing.T, out string) {
	t.Helper()
	const want = `put 201 leaking_bucket
submit 202 queued
job a/b c hello
batch 200 2
missing 404 Not Found
`
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
