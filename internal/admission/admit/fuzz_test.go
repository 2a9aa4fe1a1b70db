package admit

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func FuzzReadHeader(f *testing.F) {
	for name, value := range map[string]string{
		job.HeaderVersion: "1", job.HeaderDeadline: "1d12h",
		"penstock-not-before": "2030-01-01T00:00:00Z", job.HeaderCost: " 7 ",
		job.HeaderPriority: "-9", job.HeaderMethod: "PUT", job.HeaderPath: "/a?b=c",
		"penstock-forward-X-A": "a\r\nb",
		"Penstock-Forward-":    "x", job.HeaderIdempotencyKey: " é ", "Content-Type": "text/plain",
		"traceparent": "00", "Cookie": "x",
	} {
		f.Add(name, value, job.HeaderDeadline, "2200-01-01T00:00:00Z")
	}
	p := policy.Policy{Name: "p",
		Rule:  policy.Rule{Algorithm: policy.TokenBucket, Capacity: 5},
		Queue: &policy.Queue{Capacity: 5}}.WithDefaults()
	f.Fuzz(func(t *testing.T, name, value, otherName, otherValue string) {
		now := time.Now()
		j, err := readHeader(map[string][]string{name: {value}, otherName: {otherValue}})
		if err != nil || j.startable(p, now) != nil {
			return
		}
		var wire bytes.Buffer // as nats.go writes it
		wire.WriteString("NATS/1.0\r\n")
		if err := http.Header(j.stored).Write(&wire); err != nil {
			t.Fatal(err)
		}
		wire.WriteString("\r\n")
		stored := nats.Header{}
		if len(j.stored) > 0 {
			if stored, err = nats.DecodeHeadersMsg(wire.Bytes()); err != nil {
				t.Fatalf("%q: %v", wire.Bytes(), err)
			}
		}
		if len(stored) != len(j.stored) {
			t.Fatalf("of %q comes %q", j.stored, stored)
		}
		read := job.ParseHeader(stored, now)
		if read.Malformed != nil {
			t.Fatalf("%q was accepted: %v", stored, read.Malformed)
		}
		if read.Cost != j.cost || j.deadline.IsZero() != read.Deadline.IsZero() ||
			j.notBefore.IsZero() != read.NotBefore.IsZero() {
			t.Fatalf("%q was accepted as %+v, and means cost %d, deadline %v, not before %v",
				stored, j, read.Cost, read.Deadline, read.NotBefore)
		}
	})
}

func FuzzReadCheckHeader(f *testing.F) {
	for _, seed := range [][2]string{{"Penstock-Cost", "3"}, {"penstock-peek", "true"},
		{"Penstock-Refund", "T"}, {"Penstock-IP", "::ffff:1.2.3.4"},
		{"Penstock-Ip", "fe80::1%eth0"}, {"Penstock-Cots", "1"}, {"Accept", "x"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, name, value string) {
		h, err := ReadCheckHeader(map[string][]string{name: {value}})
		if err != nil {
			if h != (CheckHeader{}) {
				t.Fatalf("%q: %q: %+v beside %v", name, value, h, err)
			}
			return
		}
		if h.Peek && h.Refund || h.IP != "" && ClientIP(value) != h.IP {
			t.Fatalf("%q: %q means %+v", name, value, h)
		}
	})
}
