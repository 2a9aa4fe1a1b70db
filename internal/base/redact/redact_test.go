package redact_test

import (
	"reflect"
	"testing"

	"github.com/penstock-mq/penstock/internal/base/redact"
)

func TestHeader(t *testing.T) {
	given := map[string][]string{
		"Penstock-Forward-Authorization": {"Bearer abcdef"}, "penstock-forward-x-api-key": {"k"},
		"Penstock-Forward-Cookie": {"a=1", "b=2"},
		"Penstock-Forward-Accept": {"text/plain"}, "Idempotency-Key": {"order-1"},
		"Content-Type": {"text/plain"},
	}
	want := map[string][]string{
		"Penstock-Forward-Authorization": {"[redacted]"},
		"penstock-forward-x-api-key":     {"[redacted]"}, "Penstock-Forward-Cookie": {"[redacted]"},
		"Penstock-Forward-Accept": {"text/plain"}, "Idempotency-Key": {"order-1"},
		"Content-Type": {"text/plain"},
	}
	if got := redact.Header(given); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if given["Penstock-Forward-Authorization"][0] != "Bearer abcdef" {
		t.Error("the job's own header was changed")
	}
}

func TestText(t *testing.T) {
	for given, want := range map[string]string{
		"bad token abcdef":        "bad token [redacted]",
		"got Bearer abcdef twice": "got [redacted] twice",
		"nothing":                 "nothing",
		"an a":                    "an a",
	} {
		if got := redact.Text(given, []string{"Bearer abcdef", "a"}); got != want {
			t.Errorf("%q: %q", given, got)
		}
	}
}
