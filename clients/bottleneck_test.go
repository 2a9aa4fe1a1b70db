package clients

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/config"
)

// TestComingFromBottleneckRuns runs both sides of docs/from-bottleneck.md, Penstock's under the
// policy of the page.
func TestComingFromBottleneckRuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/from-bottleneck.md")
	if err != nil {
		t.Fatal(err)
	}
	fenced := func(kind string) (blocks []string) {
		for _, block := range strings.Split(string(page), "```"+kind+"\n")[1:] {
			code, _, _ := strings.Cut(block, "```")
			blocks = append(blocks, code)
		}
		return blocks
	}
	settings, sides := fenced("yaml"), fenced("js")
	if len(settings) != 1 || len(sides) != 2 {
		t.Fatalf("%d policies, %d programs", len(settings), len(sides))
	}
	loaded, err := config.Load(strings.NewReader(settings[0]), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, url := open(t, loaded.Policies...)
	dir := filepath.Join(scratch, "bottleneck")
	if err := os.CopyFS(dir, os.DirFS("testdata/bottleneck")); err != nil {
		t.Fatal(err)
	}
	if err := run(dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"); err != nil {
		t.Fatal(err)
	}
	program := func(name, imports, code string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		code = imports + "\nconst customers = [\"ann\", \"bob\", \"cleo\"];\n" +
			"const send = async (name = \"\") => console.log(\"sent to\", name);\n" + code +
			"process.exit();\n"
		if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	theirs := program("theirs.mjs", `import Bottleneck from "bottleneck";`, sides[0])
	ours := program("ours.ts", `import { Penstock } from "@penstock-mq/client";`, strings.Replace(
		sides[1], `http://127.0.0.1:8080"`, url+`", { token: "`+token+`" }`, 1))
	typescript := languages[1]
	for _, side := range []*exec.Cmd{exec.Command("node", theirs), typescript.command(t, ours)} {
		out, err := side.CombinedOutput()
		sent := strings.SplitAfter(string(out), "\n")
		slices.Sort(sent)
		if got := strings.Join(sent, ""); err != nil ||
			got != "sent to ann\nsent to bob\nsent to cleo\n" {
			t.Errorf("%s: %v: it says\n%s", side, err, out)
		}
	}
}
