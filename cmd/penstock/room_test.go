package main

import (
	"strings"
	"testing"
)

func TestAPolicyThatIsFullByBytesSaysSo(t *testing.T) {
	i := install(t, `
  - {name: mail, algorithm: leaking_bucket, outflow: 1/h, capacity: 1000, max_bytes: 2MiB}
  - {name: bulk, algorithm: leaking_bucket, outflow: 1/h, capacity: 1000, max_bytes: 16MiB}
`)
	large := strings.Repeat("x", 100_000)
	for range 25 {
		i.Run(0, "submit", "bulk", large)
	}
	for range 20 {
		i.Run(0, "submit", "mail", large)
	}
	out := i.Run(3, "submit", "mail", large)
	for _, text := range []string{out, i.Run(0, "why", "mail"),
		i.Run(0, "why", "mail", "--key", "")} {
		if !strings.Contains(text, "the jobs of mail take 1.9") ||
			!strings.Contains(text, "of 2 MiB, its max_bytes, so new ones are refused; "+
				"those of bulk take most, 2.3") {
			t.Errorf("it prints %s", text)
		}
	}
	if out := i.Run(0, "why", "bulk"); strings.Contains(out, "take") {
		t.Errorf("of a policy with room it prints %s", out)
	}
}
