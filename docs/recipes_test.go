package docs

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue/embedded"
	"github.com/penstock-mq/penstock/workers"
)

// TestRecipesRun loads each recipe of the guide, and runs a job of each under its limits, with a
// handler instead of the target.
func TestRecipesRun(t *testing.T) {
	page, err := os.ReadFile("guide.md")
	if err != nil {
		t.Fatal(err)
	}
	var policies []policy.Policy
	before, _, _ := strings.Cut(string(page), "\n## Limits\n")
	for i, block := range strings.Split(string(page), "```yaml\n")[1:] {
		recipe, _, _ := strings.Cut(block, "```")
		loaded, err := config.Load(strings.NewReader(recipe), nil)
		if err != nil {
			t.Fatalf("%s%v", recipe, err)
		}
		for _, p := range loaded.Policies {
			p.Target = nil
			if i >= strings.Count(before, "```yaml\n") && !p.Door() {
				policies = append(policies, p)
			}
		}
	}
	if len(policies) < 6 {
		t.Fatalf("%d recipes", len(policies))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p, err := penstock.Open(ctx, penstock.Options{Policies: policies,
		Server: embedded.Options{Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	done := make(chan string, len(policies))
	for _, recipe := range policies {
		p.Handle(recipe.Name, func(_ context.Context, j workers.Job) error {
			j.Settle("tokens", 3)
			done <- j.Policy
			return nil
		})
	}
	ran := make(chan error, 1)
	go func() { ran <- p.Run(ctx) }()
	for _, recipe := range policies {
		j := penstock.Job{Policy: recipe.Name, Key: "acme"}
		for _, l := range recipe.Limits {
			if l.Cost != "" {
				j.Costs = map[string]int64{l.Cost: 5}
			}
		}
		if _, err := p.Submit(ctx, j); err != nil {
			t.Fatalf("%s: %v", recipe.Name, err)
		}
	}
	waittest.Until(t, "each recipe runs a job", func() bool { return len(done) == len(policies) })
	cancel()
	<-ran
}
