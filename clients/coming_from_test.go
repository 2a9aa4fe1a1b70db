package clients

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

var counted = regexp.MustCompile("(?s)(\\d+) lines[^\n]*:\n```(\\w+)\n(.*?)```")

// surroundings completes the pages' blocks of Go code to programs.
var surroundings = map[string]string{
	"email": `package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"github.com/nats-io/nats.go"
	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/workers"
)

func main() {
	log.SetFlags(0)
	nc, _ := nats.Connect(os.Args[1])
	drainer, _ := workers.New(nc, workers.Options{WorkerOnly: true})
	go work(context.Background(), drainer)
	client, _ := penstock.NewNATSClient(nc, "")
	if err := enqueue(context.Background(), client); err != nil {
		log.Fatal(err)
	}
	select {}
}
`,
	"sort": `package main

import (
	"context"
	"fmt"
	"log"
	"sort"
	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

func main() {
	p, err := penstock.Open(context.Background(), penstock.Options{Policies: []policy.Policy{
		{Name: "sort", Rule: policy.Rule{Algorithm: policy.LeakingBucket,
			Outflow: penstock.MustRate("10/s"), Capacity: 1000}}}})
	if err == nil {
		err = run(context.Background(), p)
	}
	if err != nil {
		log.Fatal(err)
	}
	select {}
}
`,
	"paint": `import { Penstock, Worker } from "@penstock-mq/client";
async function paintCar(color: string) { console.log("painting", color); }
`,
}

func TestComingFromRuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := counted.FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 5 {
		t.Fatalf("%d blocks", len(blocks))
	}
	for i, block := range blocks {
		lines := 0
		for line := range strings.Lines(block[3]) {
			if strings.TrimSpace(line) != "" {
				lines++
			}
		}
		if strconv.Itoa(lines) != block[1] {
			t.Errorf("block %d has %d lines, and %s are announced", i+1, lines, block[1])
		}
	}
	p, url := open(t, bucket("email", 10), bucket("paint", 10))
	goes := func(name, code, want string, args ...string) {
		t.Helper()
		w := worker{Process: startGo(t, surroundings[name]+code, args...), i: &installation{t: t}}
		w.prints(want)
	}
	goes("email", blocks[1][3], "Sending Email to User: user_id=42, template_id=some:template:id",
		p.NATSURL())
	goes("sort", blocks[2][3], "Sorted strings: [bear tiger whale]")
	code := strings.NewReplacer("http://127.0.0.1:8080\"", url+`", { token: "`+token+`" }`,
		"nats://127.0.0.1:4222", p.NATSURL()).Replace(blocks[4][3])
	file := filepath.Join(t.TempDir(), "paint.ts")
	code = surroundings["paint"] + code + "await worker.stop();\n"
	if err := os.WriteFile(file, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	typescript := languages[1]
	out, err := typescript.command(t, file).CombinedOutput()
	if err != nil || string(out) != "painting blue\ndone painting\n" {
		t.Errorf("%v: it says\n%s", err, out)
	}
}

func startGo(t *testing.T, code string, args ...string) *proctest.Process {
	t.Helper()
	dir := t.TempDir()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "main.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(here, "generated/main.go"): program}})
	if err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string][]byte{program: []byte(code),
		filepath.Join(dir, "overlay.json"): overlay} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "program")
	err = run(here, "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary,
		"./generated")
	if err != nil {
		t.Fatal(err)
	}
	return proctest.Start(t, exec.Command(binary, args...))
}

func (w *worker) prints(line string) {
	w.i.t.Helper()
	waittest.Until(w.i.t, fmt.Sprintf("it prints %q", line), func() bool {
		return strings.Contains(strings.Join(w.ran(), "\n")+w.Log.String(), line)
	})
}
