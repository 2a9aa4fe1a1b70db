package trace

import (
	"fmt"
	"strings"
	"testing"
)

// Lines in the form of each program's documentation, which logs.go names.
var recorded = map[string]string{
	Log: `203.0.113.7 - ann [01/Jan/2030:00:00:01 +0000] "GET /a?b=1 HTTP/1.1" 200 12
2001:db8::1 - - [01/Jan/2030:00:00:02 +0000] "GET /b HTTP/1.1" 200 12 "-" "curl/8" 7 "r@file" "http://10.0.0.1" 3ms`,
	"vhost_combined": `shop.example:443 203.0.113.7 - ann [01/Jan/2030:00:00:01 +0000] "GET /a?b=1 HTTP/1.1" 200 12 "-" "curl/8"
[2001:db8::9]:80 2001:db8::1 - - [01/Jan/2030:00:00:02 +0000] "GET /b HTTP/1.1" 200 12 "-" "curl/8"`,
	"alb": `https 2030-01-01T00:00:09.000000Z app/front/1a2b 203.0.113.7:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://shop.example:443/a?b=1 HTTP/1.1" "a \"quoted\" agent" ECDHE TLSv1.2 arn:aws:elasticloadbalancing:x "Root=1-5" "shop.example" "arn:aws:acm:x" 1 2030-01-01T00:00:01.000000Z "waf,forward" "-" "-" "10.0.0.1:80" "200" "-" "-"
h2 2030-01-01T00:00:02.000000Z app/front/1a2b 2001:db8::1:2818 - -1 -1 -1 400 - 0 57 "GET http://shop.example:80/b HTTP/1.1" "-" - -`,
	"haproxy": `Jan  1 00:00:01 lb haproxy[99]: 203.0.113.7:33317 [01/Jan/2030:00:00:01.000] www static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {shop.example} {} "GET /a?b=1 HTTP/1.1"
2001:db8::1:33318 [01/Jan/2030:00:00:02.000] www static/<NOSRV> 10/-1/-1/-1/10 503 212 - - SC-- 1/1/1/1/0 0/0 "GET /b HTTP/1.1"`,
	"cloudfront": "#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status\n" +
		"2030-01-01\t00:00:01\tFRA6\t57\t203.0.113.7\tGET\td1.cloudfront.example\t/a\t200\n" +
		"2030-01-01\t00:00:02\tFRA6\t57\t2001:db8::1\tGET\td1.cloudfront.example\t/b\t200",
	"traefik": `{"ClientAddr":"203.0.113.7:51000","ClientHost":"203.0.113.7","ClientUsername":"ann","RequestHost":"shop.example","RequestPath":"/a?b=1","StartUTC":"2030-01-01T00:00:01Z","time":"2030-01-01T00:00:03Z"}
{"ClientHost":"2001:db8::1","ClientUsername":"-","RequestPath":"/b","StartUTC":"2030-01-01T00:00:02Z","time":"2030-01-01T00:00:03Z"}`,
	"caddy": `{"level":"info","ts":1893456001.0,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"203.0.113.7","remote_port":"41342","host":"shop.example","uri":"/a?b=1"},"user_id":"ann","status":200}
{"level":"info","ts":1893456002.0,"request":{"remote_ip":"10.0.0.1","client_ip":"2001:db8::1","uri":"/b"},"user_id":"","status":200}`,
	"cloudflare": `{"ClientIP":"203.0.113.7","ClientRequestHost":"shop.example","ClientRequestPath":"/a","EdgeStartTimestamp":1893456001000000000,"RayID":"1"}
{"ClientIP":"2001:db8::1","ClientRequestURI":"/b?c=2","EdgeStartTimestamp":"2030-01-01T00:00:02Z"}`,
	"gcloud": `{"httpRequest":{"remoteIp":"203.0.113.7","requestMethod":"GET","requestUrl":"https://shop.example/a?b=1"},"resource":{"type":"http_load_balancer"},"timestamp":"2030-01-01T00:00:01Z","receiveTimestamp":"2030-01-01T00:00:05Z"}
{"httpRequest":{"remoteIp":"2001:db8::1","requestUrl":"http://shop.example/b"},"timestamp":"2030-01-01T00:00:02Z"}`,
	"nginx": `{"time_local":"01/Jan/2030:01:00:01 +0100","remote_addr":"203.0.113.7","remote_user":"ann","request":"GET /a?b=1 HTTP/1.1","http_x_tenant":"acme"}
{"time_iso8601":"2030-01-01T00:00:02+00:00","remote_addr":"2001:db8::1","remote_user":"","uri":"/b","http_x_tenant":"bolt"}`,
}

func TestLogsOfWellKnownProgramsAreRead(t *testing.T) {
	if len(recorded) != len(accesses) {
		t.Errorf("%d formats have lines, of %d", len(recorded), len(accesses))
	}
	for name, text := range recorded {
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
		got, err := Read(strings.NewReader(recorded[c.format]), Options{Key: c.key})
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
		{recorded["gcloud"], Options{Key: "user"}, "no line has the key user"},
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
		got, err := Read(strings.NewReader(recorded[format]+"\n"+line), Options{})
		if err != nil || len(got.Requests) != 2 || got.Skipped != 1 ||
			got.Problems[0].Reason != "is no request of the format "+format {
			t.Errorf("%s: %+v, %v", format, got, err)
		}
	}
}
