package trace

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// recorded returns two requests in the form of the format's documentation, which logs.go names.
func recorded(t *testing.T, format string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + format + ".log")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLogsOfWellKnownProgramsAreRead(t *testing.T) {
	for _, a := range accesses {
		name, text := a.name, recorded(t, a.name)
		for _, format := range []string{name, Auto} {
			for _, key := range []string{"", "path"} {
				got, err := Read(strings.NewReader(text), Options{Format: format, Key: key})
				if err != nil {
					t.Errorf("%s as %s: %v", name, format, err)
					continue
				}
				first, second := "203.0.113.7", "2001:db8::1"
				if key == "path" {
					first, second = "/a", "/b"
				}
				as := name
				if format == Auto && name == "vhost_combined" {
					as = Log
				}
				want := fmt.Sprintf("1s %s from 203.0.113.7\n2s %s from 2001:db8::1\n%s, 0 skipped",
					first, second, as)
				if told(got) != want {
					t.Errorf("%s as %s by %s: it says\n%s\nwant\n%s", name, format, key, told(got),
						want)
				}
			}
		}
	}
}

func TestLogsHaveUsersHostsAndFieldsOfTheirOwn(t *testing.T) {
	for _, c := range []struct{ format, key, want string }{
		{"vhost_combined", "user", "ann"}, {"vhost_combined", "host", "shop.example"},
		{"traefik", "user", "ann"}, {"caddy", "user", "ann"}, {"nginx", "user", "ann"},
		{"alb", "host", "shop.example"}, {"cloudfront", "host", "d1.cloudfront.example"},
		{"cloudfront", "x-edge-location", "FRA6"}, {"caddy", "request.remote_port", "41342"},
		{"nginx", "http_x_tenant", "acme"}, {"gcloud", "resource.type", "http_load_balancer"},
	} {
		got, err := Read(strings.NewReader(recorded(t, c.format)), Options{Key: c.key})
		if err != nil || len(got.Requests) != 2 || string(got.Requests[0].Key) != c.want {
			t.Errorf("%s by %s: %+v, %v", c.format, c.key, got, err)
		}
	}
}

func TestATraceWithoutTheKeyIsRefused(t *testing.T) {
	for _, c := range []struct {
		text string
		o    Options
		says string
	}{
		{`{"time":1893456000,"tenant":"a"}`, Options{Key: "user"},
			"no line has the key user: with --key it may be one of tenant; with --key '' they"},
		{`{"time":1893456000,"tenant":"a"}`, Options{}, "no line has the key key: with --key it may"},
		{`{"time":1893456000}`, Options{Key: "tenant"}, "no line has the key tenant"},
		{"time,tenant\n1893456000,a\n", Options{}, "one of tenant"},
		{"time,tenant\n1893456000,a\n", Options{Key: "user"}, "no line has the key user"},
		{`203.0.113.7 - - [01/Jan/2030:00:00:01 +0000] "GET /a HTTP/1.1" 200 1`,
			Options{Key: "user"}, "no line has the key user"},
		{recorded(t, "gcloud"), Options{Key: "user"}, "no line has the key user"},
	} {
		if _, err := Read(strings.NewReader(c.text), c.o); err == nil ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %s", c.text, err, c.says)
		}
	}
	for _, c := range []struct {
		text    string
		o       Options
		keyless int
	}{
		{`{"time":1893456000,"tenant":"a"}`, Options{Keyless: true}, 0},
		{`{"time":1893456000,"cost":2}`, Options{}, 0}, {"time\n1893456000\n", Options{}, 0},
		{`{"time":1893456000,"tenant":"a"}` + "\n" + `{"time":1893456001}`,
			Options{Key: "tenant"}, 1},
		{"1893456000,a\n1893456001\n", Options{}, 1},
	} {
		got, err := Read(strings.NewReader(c.text), c.o)
		if err != nil || got.Keyless != c.keyless {
			t.Errorf("%s: %+v, %v", c.text, got, err)
		}
	}
}

func TestAnyFieldMayBeTheTime(t *testing.T) {
	for _, c := range []struct {
		text string
		o    Options
		want string
	}{
		{`{"when":{"began":"2030-01-01T00:00:01Z"},"time":5,"key":"a"}`,
			Options{Time: "when.began"}, "1s a\nndjson, 0 skipped"},
		{"Time,began,key\nx,1893456001,a\n", Options{Time: "began"}, "1s a\ncsv, 0 skipped"},
		{`{"remote_addr":"203.0.113.7","time_local":"x","msec":1,"received":1893456003}`,
			Options{Time: "received"}, "3s 203.0.113.7 from 203.0.113.7\nnginx, 0 skipped"},
		{`{"key":"a","time":1}`, Options{Time: "began"}, "line 1: no began\nndjson, 1 skipped"},
		{"1893456001,a\n", Options{Time: "began"},
			"line 1: no line names a column began\ncsv, 1 skipped"},
	} {
		got, err := Read(strings.NewReader(c.text), c.o)
		if err != nil || told(got) != c.want {
			t.Errorf("%s: %v\n%s\nwant\n%s", c.text, err, told(got), c.want)
		}
	}
}

func TestLinesThatAreNoRequestsAreSkipped(t *testing.T) {
	for format, line := range map[string]string{
		"caddy":      `{"level":"info","ts":1893456003,"logger":"tls","msg":"cleaning storage unit"}`,
		"haproxy":    "Jan  1 00:00:01 lb haproxy[99]: Proxy www started.",
		"alb":        "http 2030-01-01T00:00:09.000000Z",
		"cloudfront": "2030-01-01\t00:00:01\tFRA6",
	} {
		got, err := Read(strings.NewReader(recorded(t, format)+line), Options{})
		if err != nil || len(got.Requests) != 2 || got.Skipped != 1 ||
			got.Problems[0].Reason != "is no request of the format "+format {
			t.Errorf("%s: %+v, %v", format, got, err)
		}
	}
}
