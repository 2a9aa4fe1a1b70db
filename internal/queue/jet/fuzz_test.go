package jet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/jsapi"
	"github.com/penstock-mq/penstock/queue"
)

// Values of a job's headers are within bounds. The case of a name, blanks around a value, and other
// headers do not change them.
func FuzzParseHeader(f *testing.F) {
	for name, value := range map[string]string{
		job.HeaderVersion: "1", job.HeaderDeadline: "1d12h",
		job.HeaderNotBefore: "2030-01-01T00:00:00Z", job.HeaderCost: "7",
		job.HeaderPriority: "-9", job.HeaderMethod: "PUT", job.HeaderPath: "/a?b=c",
		job.HeaderForwardPrefix + "X-A": "\x00", "penstock-new": "1",
	} {
		f.Add(name, value, job.HeaderDeadline, "0001-01-01T00:00:00Z")
	}
	stored := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	f.Fuzz(func(t *testing.T, name, value, otherName, otherValue string) {
		if name == otherName {
			return
		}
		a := job.ParseHeader(nats.Header{name: {value}, otherName: {otherValue}}, stored)
		if a.Malformed != nil {
			if a.Malformed.Error() == "" {
				t.Fatal("malformed without a word")
			}
			return
		}
		if a.Cost < 1 || a.Cost > job.MaxCost || a.Priority < job.MinPriority ||
			a.Priority > job.MaxPriority {
			t.Fatalf("cost %d, priority %d", a.Cost, a.Priority)
		}
		one := job.ParseHeader(nats.Header{name: {value}}, stored)
		if one.Malformed != nil {
			t.Fatalf("%q: %q is malformed alone only: %v", name, value, one.Malformed)
		}
		if (one.Deadline.IsZero()) == strings.EqualFold(name, job.HeaderDeadline) {
			t.Fatalf("%q: %q means the deadline %v", name, value, one.Deadline)
		}
		again := job.ParseHeader(nats.Header{strings.ToLower(name): {" " + value + "\t"}}, stored)
		again.Header, one.Header = nil, nil
		if !isASCII(name) || again.Malformed == nil && reflect.DeepEqual(again, one) {
			return
		}
		t.Fatalf("%q: %q means %+v, in another spelling %+v", name, value, one, again)
	})
}

func isASCII(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= 0x80 })
}

// A path stays below its base URL, even if unescaped several times.
func FuzzParsePath(f *testing.F) {
	for _, seed := range []string{"/", "/a//b?c=/..", "/%2e%2E/x", "/a%2f../x", "//host", "///a",
		"/\\host", "/..%5cx", "/a/..;/b", "/%00", "/%252e%252e/",
		"/a#b", "/?x", "/:80", "/%2F\xdd", "/a%2Fä", "/a%2F{b}|^`<>\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		path, err := job.ParsePath(value)
		if err != nil {
			return
		}
		if path.Scheme != "" || path.Host != "" || path.User != nil ||
			!strings.HasPrefix(path.Path, "/") {
			t.Fatalf("%q is read as %#v", value, path)
		}
		if again, err := job.ParsePath(path.EscapedPath()); err != nil ||
			again.Path != path.Path || again.EscapedPath() != path.EscapedPath() {
			t.Fatalf("%q is written as %q, which is %v, %v", value, path.EscapedPath(), again, err)
		}
		for seen, more := path.EscapedPath(), 3; more > 0; more-- {
			for _, segment := range strings.FieldsFunc(seen, func(r rune) bool {
				return r == '/' || r == '\\'
			}) {
				name, _, _ := strings.Cut(segment, ";")
				if name == "." || name == ".." ||
					strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
					t.Fatalf("%q is accepted, and %q a segment of it", value, segment)
				}
			}
			var err error
			if seen, err = url.PathUnescape(seen); err != nil {
				return
			}
		}
	})
}

// stable decodes data, if possible, and fails unless the value round-trips.
func stable[T any](t *testing.T, data []byte) (value T, ok bool) {
	t.Helper()
	if json.Unmarshal(data, &value) != nil {
		return value, false
	}
	written, err := json.Marshal(value)
	if err != nil { // a time that JSON cannot hold
		return value, false
	}
	var again T
	if err := json.Unmarshal(written, &again); err != nil {
		t.Fatalf("%s is not read again: %v", written, err)
	}
	if second, err := json.Marshal(again); err != nil || !bytes.Equal(second, written) {
		t.Fatalf("%s is read again as %s, %v", written, second, err)
	}
	return value, true
}

func FuzzValveMessages(f *testing.F) {
	ms, position := int64(7), 3
	for _, seed := range []any{
		job.Question{V: 1, Op: job.OpExpect, Jobs: []uint64{1, 1 << 63}, Key: "a.%2A", Limit: -1,
			Outcome: json.RawMessage(`{"seq":1}`)},
		job.Answer{V: 1, Starts: []job.ExpectedStart{{Seq: 1, Known: true, DelayMS: 5}},
			Buckets: []job.BucketState{{Key: "a",
				BucketState: api.BucketState{ETAMS: &ms, Rate: 1.5}}},
			Job: &job.State{Seq: 1, State: job.Waiting, Position: &position,
				AcceptedAt: time.Unix(1, 2)}},
		queue.Event{V: 1, Type: queue.EventDone, Job: "api:1", Key: "a", Attempt: 2, WaitMS: 3},
	} {
		data, err := json.Marshal(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(`{"jobs":null,"buckets":[{}],"job":{},"rate":1e400}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		stable[job.Question](t, data)
		stable[job.Answer](t, data)
		stable[queue.Event](t, data)
	})
}

func FuzzConsumerName(f *testing.F) {
	names, err := NewNames("")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("valve-0-1")
	f.Add("valve--1-18446744073709551615")
	f.Add("valve-00-1")
	f.Add("valve-1-2-3")
	f.Fuzz(func(t *testing.T, name string) {
		partition, epoch, ok := names.parseConsumer(name)
		if !ok {
			return
		}
		if p, e, ok := names.parseConsumer(names.consumer(partition, epoch)); !ok ||
			p != partition || e != epoch {
			t.Fatalf("%q is %d and %d, which are %q", name, partition, epoch,
				names.consumer(partition, epoch))
		}
	})
}

func FuzzServersHeaders(f *testing.F) {
	for _, seed := range []string{
		"", "A: b\r\n", "Nats-Sequence: 8\r\nNats-Subject: penstock.queue.p.0.x\r\n",
		"Nats-Msg-Size: -5\r\n", "Status: 404\r\n", "no header", "nats-msg-size: 9\r\n",
		"A:\r\n \r\n",
	} {
		f.Add(seed)
	}
	names, err := NewNames("")
	if err != nil {
		f.Fatal(err)
	}
	b := &Broker{names: names}
	const subject = "penstock.queue.p.3.key"
	stored := time.Date(2031, 1, 2, 3, 4, 5, 6, time.UTC)
	f.Fuzz(func(t *testing.T, publishers string) {
		for line := range strings.Lines(publishers) {
			if strings.TrimRight(line, "\r\n") == "" {
				// clients use only the body
				return
			}
		}
		block := fmt.Sprintf(
			"NATS/1.0\r\n%sNats-Stream: S\r\nNats-Subject: %s\r\nNats-Sequence: 7\r\n"+
				"Nats-Time-Stamp: %s\r\nNats-Msg-Size: 11\r\n\r\n",
			publishers, subject, stored.Format(time.RFC3339Nano))
		header, err := nats.DecodeHeadersMsg([]byte(block))
		if err != nil {
			return // the client omits such a block
		}
		m, ok := jsapi.ReadDirect(&nats.Msg{Header: header})
		if !ok {
			return // the leader answers in another form
		}
		a := b.names.arrived(m, true)
		if a.Seq != 7 || a.Key != "key" || a.Partition != 3 || !a.Stored.Equal(stored) ||
			a.Size != 11 {
			t.Fatalf("%q: %+v", publishers, a)
		}
	})
}

func FuzzEnded(f *testing.F) {
	data, err := json.Marshal(job.Ended{V: job.FormatVersion, How: queue.EndDead, Letter: 5, Job: 6,
		Accepted: time.Unix(1, 2), Sum: "x"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) { stable[job.Ended](t, data) })
}
