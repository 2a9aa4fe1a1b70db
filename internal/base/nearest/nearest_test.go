package nearest_test

import (
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/base/nearest"
)

func TestTo(t *testing.T) {
	candidates := []string{"url", "prefix", "replicas", "embedded", "dir", "max_backoff", "backoff",
		"window", "max_attempts"}
	for word, want := range map[string]string{
		"urls":                   "url",
		"Prefix":                 "prefix",
		"replica":                "replicas",
		"directory":              "dir",
		"windw":                  "window",
		"max_backof":             "max_backoff",
		"bakcoff":                "backoff",
		"attempts":               "max_attempts",
		"colour":                 "",
		"x":                      "",
		"":                       "",
		strings.Repeat("u", 100): "",
	} {
		if got := nearest.To(word, candidates); got != want {
			t.Errorf("%.20q: got %q, want %q", word, got, want)
		}
	}
	if got := nearest.Hint("urls", candidates); got != "; did you mean url?" {
		t.Errorf("got %q", got)
	}
}
