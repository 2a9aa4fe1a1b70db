package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// access is a format of access logs: a line has groups named time, ip, user, host, and path or
// request; an object has the first of the fields that it lists for each.
type access struct {
	name   string
	line   *regexp.Regexp
	fields map[string][]string
}

const (
	cloudFront = "cloudfront" // has columns, which lines of comments name

	quoted   = `"(?:[^"\\]|\\.)*"`
	asked    = `"(?P<request>(?:[^"\\]|\\.)*)"`
	combined = `^(?:(?P<host>\S+):\d+ )?(?P<ip>[^\s-]\S*) \S+ (?P<user>.+?) ` +
		`\[(?P<time>\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] ` + asked
)

// accesses are tried in this order on the first line. Sources:
//
//   - https://httpd.apache.org/docs/2.4/mod/mod_log_config.html (common, combined, virtual hosts)
//   - https://docs.aws.amazon.com: elasticloadbalancing/latest/application/
//     load-balancer-access-logs.html, AmazonCloudFront/latest/DeveloperGuide/
//     standard-logs-reference.html
//   - https://docs.haproxy.org/3.2/configuration.html#8.2.3
//   - https://doc.traefik.io/traefik/observability/access-logs/ (its default is common)
//   - https://caddyserver.com/docs/logging
//   - https://nginx.org/en/docs/http/ngx_http_log_module.html (names of variables as fields)
//   - https://developers.cloudflare.com/logs/logpush/logpush-job/datasets/zone/http_requests/
//   - https://cloud.google.com/load-balancing/docs/https/https-logging-monitoring
var accesses = []access{
	{name: Log, line: regexp.MustCompile(combined)},
	{name: "vhost_combined", line: regexp.MustCompile(strings.Replace(combined, " )?", " )", 1))},
	{name: "alb", line: regexp.MustCompile(`^(?:https?|h2|grpcs|wss?) (?P<time>\S+Z) \S+ ` +
		`(?P<ip>\S+):\d+ (?:\S+ ){8}` + asked + `(?: ` + quoted + ` \S+ \S+ \S+ ` + quoted +
		` "(?P<host>[^"]*)" ` + quoted + ` \S+ (?P<began>\S+Z))?`)},
	{name: "haproxy", line: regexp.MustCompile(`(?:^|: )(?P<ip>\S+):\d+ ` +
		`\[(?P<time>\d\d/\w{3}/\d{4}:\d\d:\d\d:\d\d\.\d{3})\] \S+ \S+/\S+ .*` + asked)},
	{name: cloudFront},
	{name: "traefik", fields: map[string][]string{"time": {"StartUTC", "StartLocal", "time"},
		"ip": {"ClientHost"}, "user": {"ClientUsername"}, "host": {"RequestHost"},
		"path": {"RequestPath"}}},
	{name: "caddy", fields: map[string][]string{"time": {"ts"},
		"ip": {"request.client_ip", "request.remote_ip"}, "user": {"user_id"},
		"host": {"request.host"}, "path": {"request.uri"}}},
	{name: "cloudflare", fields: map[string][]string{
		"time": {"EdgeStartTimestamp", "EdgeEndTimestamp"}, "ip": {"ClientIP"},
		"host": {"ClientRequestHost"}, "path": {"ClientRequestPath", "ClientRequestURI"}}},
	{name: "gcloud", fields: map[string][]string{"time": {"timestamp"},
		"ip": {"httpRequest.remoteIp"}, "path": {"httpRequest.requestUrl"}}},
	{name: "nginx", fields: map[string][]string{"time": {"msec", "time_iso8601", "time_local",
		"time", "timestamp", "@timestamp"}, "ip": {"remote_addr"}, "user": {"remote_user"},
		"host": {"host", "http_host", "server_name"}, "path": {"request_uri", "uri", "request"}}},
}

func accessNamed(name string) *access {
	for i := range accesses {
		if accesses[i].name == name {
			return &accesses[i]
		}
	}
	return nil
}

// recognizes reports whether a line is unmistakable.
func (a *access) recognizes(text []byte) bool {
	if a.name == cloudFront {
		return bytes.HasPrefix(text, []byte("#Version:")) ||
			bytes.HasPrefix(text, []byte("#Fields:"))
	}
	find := a.lookup(text)
	if find == nil {
		return false
	}
	_, timed := find("time")
	_, keyed := find("key") // as of our own format
	return timed && !keyed
}

func (a *access) reader(o Options) reader {
	if a.name != cloudFront {
		return func(text []byte, _ int) (line, error) { return a.read(a.lookup(text), o) }
	}
	columns := strings.Fields("date time x-edge-location sc-bytes c-ip cs-method cs(Host) " +
		"cs-uri-stem sc-status")
	return func(text []byte, _ int) (line, error) {
		if names, is := strings.CutPrefix(string(text), "#"); is {
			if names, is = strings.CutPrefix(names, "Fields:"); is {
				columns = strings.Fields(names)
			}
			return line{aside: true}, nil
		}
		return a.read(ofColumns(columns, strings.Fields(string(text))), o)
	}
}

// lookup finds a field of a line by our name for it, or the format's own.
type lookup func(name string) (value string, found bool)

// lookup returns nil for a line of another format.
func (a *access) lookup(text []byte) lookup {
	if a.line == nil {
		return a.ofObject(text)
	}
	match := a.line.FindSubmatch(text)
	if match == nil {
		return nil
	}
	return func(name string) (string, bool) {
		i := a.line.SubexpIndex(name)
		if i < 0 || match[i] == nil {
			return "", false
		}
		return string(match[i]), true
	}
}

func (a *access) ofObject(text []byte) lookup {
	var o object
	if json.Unmarshal(text, &o) != nil {
		return nil
	}
	if _, is := o.first(a.fields["ip"]); !is {
		return nil
	}
	return func(name string) (string, bool) {
		if names, ours := a.fields[name]; ours {
			return o.first(names)
		}
		return o.first([]string{name})
	}
}

func ofColumns(names, values []string) lookup {
	if len(values) < len(names) {
		return nil
	}
	of := map[string]string{}
	for i, name := range names {
		of[name] = values[i]
	}
	of["time"] = of["date"] + "T" + of["time"] + "Z"
	of["ip"], of["host"], of["path"] = of["c-ip"], of["cs(Host)"], of["cs-uri-stem"]
	return func(name string) (value string, found bool) {
		value, found = of[name]
		return value, found
	}
}

func (a *access) read(find lookup, o Options) (l line, err error) {
	if find == nil {
		if a.line != nil && a.name == Log {
			return l, errors.New("is no line of an access log")
		}
		return l, fmt.Errorf("is no request of the format %s", a.name)
	}
	text, is := find("began") // rather than the end
	if !is {
		text, is = find(cmp.Or(o.Time, "time"))
	}
	if !is {
		return l, fmt.Errorf("no %s", cmp.Or(o.Time, "time"))
	}
	if l.at, err = instant(text); err != nil {
		return l, fmt.Errorf("time %q is none", text)
	}
	ip, _ := find("ip")
	l.IP, l.Cost = strings.Trim(ip, "[]"), 1
	switch key := cmp.Or(o.Key, "ip"); key {
	case "ip", "key":
		l.key = l.IP
	case "path":
		l.key, err = path(find)
	default:
		if l.key, is = find(key); !is && a.line != nil && key != "user" && key != "host" {
			return l, fmt.Errorf("a log has no %s: want ip, path, user or host", key)
		}
	}
	l.keyed = l.key != "" && l.key != "-"
	return l, err
}

// path is without the query: of a path, an address, or a request such as GET / HTTP/1.1.
func path(find lookup) (string, error) {
	text, is := find("path")
	if !is {
		text, _ = find("request")
	}
	found := text
	if words := strings.Fields(text); len(words) > 1 {
		found = words[1]
	}
	if address, err := url.Parse(found); err == nil && address.Host != "" {
		found = "/" + strings.TrimPrefix(address.EscapedPath(), "/")
	}
	found, _, _ = strings.Cut(found, "?")
	if !strings.HasPrefix(found, "/") && found != "*" {
		return "", fmt.Errorf("request %q has no path", text)
	}
	return found, nil
}

// object is of JSON.
type object map[string]json.RawMessage

// first returns the first field that is there; a dot leads into an object.
func (o object) first(names []string) (string, bool) {
	for _, name := range names {
		if value, is := o.at(name); is && string(value) != "null" {
			return plain(value), true
		}
	}
	return "", false
}

func (o object) at(name string) (json.RawMessage, bool) {
	if value, is := o[name]; is {
		return value, true
	}
	outer, rest, dotted := strings.Cut(name, ".")
	var inner object
	if !dotted || json.Unmarshal(o[outer], &inner) != nil {
		return nil, false
	}
	return inner.at(rest)
}
