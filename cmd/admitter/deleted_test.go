package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// A server without its directory writes to deleted files, so the process ends soon, and the next
// one sets the directory up.
func TestADeletedDataDirectoryIsSetUpAgain(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		file := configure(t, policies)
		submit := func(p *process) {
			t.Helper()
			if status, body := p.post("/v1/jobs/stripe/acme", "pay"); status != 202 ||
				!strings.Contains(body, "stripe:1") {
				t.Errorf("%d %s", status, body)
			}
		}
		p := launch(t, "--config", file).ready()
		submit(p)
		if !running {
			p.stop()
		}
		waittest.Until(t, "the directory is deleted while its server writes", func() bool {
			return os.RemoveAll(filepath.Join(filepath.Dir(file), "nats")) == nil
		})
		if running {
			const why = "was deleted or replaced while the server ran"
			if status := p.end(); status != 1 || !strings.Contains(p.Log.String(), why) {
				t.Errorf("ended with status %d", status)
			}
		}
		p = launch(t, "--config", file).ready()
		submit(p)
		p.stop()
	}
}
