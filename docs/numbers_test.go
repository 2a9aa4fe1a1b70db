package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/internal/server/lifecycle"
	"github.com/penstock-mq/penstock/policy"
)

func TestPagesHaveTheNumbersOfTheCode(t *testing.T) {
	p := policy.Policy{Rule: policy.Rule{Algorithm: policy.LeakingBucket}}.WithDefaults()
	for page, sentences := range map[string][]string{
		"reference/api.md": {
			fmt.Sprintf("job bodies %d MiB", admission.MaxBody>>20),
			fmt.Sprintf("There can be %d,000 policies", store.MaxPolicies/1000),
			fmt.Sprintf("One address may open %d connections",
				lifecycle.DefaultMaxPerClient),
		},
		"guide.md": {
			fmt.Sprintf("with the defaults (%d attempts, %g s, %g h)", p.Retry.MaxAttempts,
				time.Duration(p.Retry.Backoff).Seconds(),
				time.Duration(p.Retry.MaxBackoff).Hours()),
		},
	} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range sentences {
			if !strings.Contains(strings.Join(strings.Fields(string(text)), " "), want) {
				t.Errorf("%s does not say: %s", page, want)
			}
		}
	}
}
