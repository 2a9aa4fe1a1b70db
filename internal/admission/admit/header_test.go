package admit

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/admission"
)

func TestReadHeader(t *testing.T) {
	job, err := readHeader(map[string][]string{
		"User-Agent":               {"curl"},
		"X-Api-Key":                {"secret"},
		"Nats-Msg-Id":              {"mine"},
		"penstock-deadline":        {"90s"},
		"PENSTOCK-COST":            {"4"},
		"Penstock-Priority":        {"-2"},
		"Penstock-Not-Before":      {"2030-01-02T03:04:05Z"},
		"Penstock-Method":          {"PUT"},
		"Penstock-Path":            {"/v1/charges?x=1"},
		"Penstock-Forward-X-Trace": {"a", "b"},
		"penstock-tag":             {"eu", "campaign-7"},
		"content-type":             {"text/plain"},
		"Idempotency-Key":          {"order-1"},
		"Traceparent":              {"00-1-2-01"},
		"Penstock-V":               {"1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if job.cost != 4 || job.idempotency != "order-1" {
		t.Errorf("got %+v", job)
	}
	want := nats.Header{
		"Penstock-Deadline":        {"90s"},
		"Penstock-Cost":            {"4"},
		"Penstock-Priority":        {"-2"},
		"Penstock-Not-Before":      {"2030-01-02T03:04:05Z"},
		"Penstock-Method":          {"PUT"},
		"Penstock-Path":            {"/v1/charges?x=1"},
		"Penstock-Forward-X-Trace": {"a", "b"},
		"Penstock-Tag":             {"eu", "campaign-7"},
		"Content-Type":             {"text/plain"},
		"Idempotency-Key":          {"order-1"},
		"traceparent":              {"00-1-2-01"},
		"Penstock-V":               {"1"},
	}
	if !maps.EqualFunc(job.stored, want, slices.Equal) {
		t.Errorf("stored %v, want %v", job.stored, want)
	}
}

// HTTP leaves blanks around a value out, NATS does not.
func TestAnIdempotencyKeyIsTheSameOverHTTPAndNATS(t *testing.T) {
	given := []string{" \ta b "}
	job, err := readHeader(map[string][]string{"Idempotency-Key": given})
	if stored := job.stored["Idempotency-Key"]; err != nil || job.idempotency != "a b" ||
		!slices.Equal(stored, []string{"a b"}) || given[0] != " \ta b " {
		t.Errorf("%q is stored as %q: %v", job.idempotency, stored, err)
	}
}

func TestReadHeaderRefuses(t *testing.T) {
	for _, c := range []struct {
		name, field string
		header      map[string][]string
	}{
		{"misspelt", "Penstock-Priorty", map[string][]string{"Penstock-Priorty": {"1"}}},
		{"an answer's", "penstock-status", map[string][]string{"penstock-status": {"200"}}},
		{"cost zero", "Penstock-Cost", map[string][]string{"Penstock-Cost": {"0"}}},
		{"cost huge", "Penstock-Cost",
			map[string][]string{"Penstock-Cost": {"99999999999999999999"}}},
		{"cost not a number", "Penstock-Cost", map[string][]string{"penstock-cost": {"many"}}},
		{"deadline without a unit", "Penstock-Deadline",
			map[string][]string{"Penstock-Deadline": {"90"}}},
		{"deadline that is none", "Penstock-Deadline",
			map[string][]string{"Penstock-Deadline": {"tomorrow"}}},
		{"not-before", "Penstock-Not-Before",
			map[string][]string{"Penstock-Not-Before": {"later"}}},
		{"attempts", "Penstock-Max-Attempts",
			map[string][]string{"Penstock-Max-Attempts": {"0"}}},
		{"timeout", "Penstock-Timeout", map[string][]string{"penstock-timeout": {"30"}}},
		{"retention", "Penstock-Retention", map[string][]string{"Penstock-Retention": {"-1s"}}},
		{"priority", "Penstock-Priority", map[string][]string{"Penstock-Priority": {"high"}}},
		{"tag", "Penstock-Tag", map[string][]string{"Penstock-Tag": {"ok", "not ok"}}},
		{"method", "Penstock-Method", map[string][]string{"Penstock-Method": {"G E T"}}},
		{"path", "Penstock-Path", map[string][]string{"Penstock-Path": {"relative"}}},
		{"version", "Penstock-V", map[string][]string{"Penstock-V": {"9"}}},
		{"forwards nothing", "Penstock-Forward-", map[string][]string{"Penstock-Forward-": {"x"}}},
		{"twice", "Penstock-Cost", map[string][]string{"Penstock-Cost": {"1", "2"}}},
		{"two spellings", "Penstock-Cost",
			map[string][]string{"Penstock-Cost": {"1"}, "penstock-cost": {"1"}}},
		{"none", "Content-Type", map[string][]string{"Content-Type": {}}},
		{"empty key", "Idempotency-Key", map[string][]string{"Idempotency-Key": {""}}},
		{"blank key", "Idempotency-Key", map[string][]string{"Idempotency-Key": {" "}}},
		{"long key", "Idempotency-Key",
			map[string][]string{"Idempotency-Key": {strings.Repeat("x", 257)}}},
		{"two keys", "Idempotency-Key", map[string][]string{"Idempotency-Key": {"a", "b"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readHeader(c.header)
			bad, ok := errors.AsType[*admission.RequestError](err)
			if !ok || bad.Field != c.field || bad.Reason == "" ||
				strings.HasPrefix(bad.Reason, c.field) {
				t.Errorf("got %v, want a problem of %s", err, c.field)
			}
		})
	}
}

func TestReadCheckHeader(t *testing.T) {
	for _, c := range []struct {
		name   string
		header map[string][]string
		want   CheckHeader
		field  string
	}{
		{"none", nil, CheckHeader{Cost: 1}, ""},
		{"others", map[string][]string{"Accept": {"*/*", "x"}}, CheckHeader{Cost: 1}, ""},
		{"both", map[string][]string{"penstock-cost": {"3"}, "Penstock-Peek": {"true"}},
			CheckHeader{Cost: 3, Peek: true}, ""},
		{"refund", map[string][]string{"Penstock-Refund": {"true"}},
			CheckHeader{Cost: 1, Refund: true}, ""},
		{"address", map[string][]string{"penstock-ip": {"10.0.0.7"}},
			CheckHeader{Cost: 1, IP: "10.0.0.7"}, ""},
		{"network", map[string][]string{"Penstock-IP": {"2001:db8:1:2:3::4"}},
			CheckHeader{Cost: 1, IP: "2001:db8:1:2::/64"}, ""},
		{"IPv4 in IPv6", map[string][]string{"Penstock-IP": {"::ffff:10.0.0.7"}},
			CheckHeader{Cost: 1, IP: "10.0.0.7"}, ""},
		{"bad address", map[string][]string{"Penstock-IP": {"10.0.0"}}, CheckHeader{},
			"Penstock-IP"},
		{"two addresses", map[string][]string{"Penstock-IP": {"10.0.0.1", "10.0.0.2"}},
			CheckHeader{}, "Penstock-Ip"},
		{"bad refund", map[string][]string{"Penstock-Refund": {"2"}}, CheckHeader{},
			"Penstock-Refund"},
		{"peek and refund",
			map[string][]string{"Penstock-Refund": {"true"}, "Penstock-Peek": {"true"}},
			CheckHeader{}, "Penstock-Refund"},
		{"bad cost", map[string][]string{"Penstock-Cost": {"1.5"}}, CheckHeader{}, "Penstock-Cost"},
		{"two costs", map[string][]string{"Penstock-Cost": {"1", "1"}}, CheckHeader{},
			"Penstock-Cost"},
		{"bad peek", map[string][]string{"Penstock-Peek": {"maybe"}}, CheckHeader{},
			"Penstock-Peek"},
		{"a job's", map[string][]string{"Penstock-Deadline": {"1s"}}, CheckHeader{},
			"Penstock-Deadline"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := ReadCheckHeader(c.header)
			bad, _ := errors.AsType[*admission.RequestError](err)
			if c.field == "" && err != nil ||
				c.field != "" && (bad == nil || bad.Field != c.field) || got != c.want {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}

func TestSeveralTracestateFieldsAreOneList(t *testing.T) {
	job, err := readHeader(map[string][]string{"Tracestate": {"a=1,b=2", "c=3"}})
	if got := job.stored["tracestate"]; err != nil || len(got) != 1 || got[0] != "a=1,b=2,c=3" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := readHeader(map[string][]string{"Traceparent": {"x", "y"}}); err == nil {
		t.Error("two traceparents are taken")
	}
}

// NATS carries control characters, which the job's HTTP target would refuse.
func TestControlCharactersInAHeaderAreRefused(t *testing.T) {
	for _, name := range []string{"Penstock-Forward-X", "Content-Type", "traceparent",
		"Idempotency-Key"} {
		for _, value := range []string{"a\x00", "a\x7f", "a\nb"} {
			_, err := readHeader(map[string][]string{name: {value}})
			if bad, ok := errors.AsType[*admission.RequestError](err); !ok ||
				!strings.EqualFold(bad.Field, name) {
				t.Errorf("%s %q: %v", name, value, err)
			}
		}
	}
}
