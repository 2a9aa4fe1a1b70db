package outbound_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func TestRequestsAreRoutedByHostPrefixAndPath(t *testing.T) {
	other := httptest.NewServer(says("files"))
	defer other.Close()
	w := begin(t, says("api"), outbound.Options{},
		outbound.Route{Host: "stripe.test"},
		outbound.Route{Host: "stripe.test", Path: "/v1/files", Upstream: other.URL},
		outbound.Route{Prefix: "/openai"},
		outbound.Route{Prefix: "/open;ai%20"},
		outbound.Route{Prefix: "/base", Upstream: other.URL + "/a/b/"})
	for _, c := range []struct{ host, path, want string }{
		{"stripe.test", "/v1/charges?x=%2F&y", "api /v1/charges?x=%2F&y"},
		{"Stripe.test:8443", "/v1/files", "files /v1/files?"},
		{"stripe.test", "/v1/files/x%2Fy", "files /v1/files/x%2Fy?"},
		{"stripe.test", "/v1/filesystem", "api /v1/filesystem?"},
		{"other.test", "/openai/v1/models", "api /v1/models?"},
		{"other.test", "/openai", "api /?"},
		{"other.test", "/open;ai%20/x", "api /x?"},
		{"other.test", "/base/c", "files /a/b/c?"},
		{"other.test", "/v1/charges", ""},
		{"other.test", "/openaix", ""},
		{"stripe.test", "/v1/../admin", ""},
		{"stripe.test", "/v1/%2e%2E/admin", ""},
		{"stripe.test", "/v1/x%2F..%2Fadmin", ""},
		{"stripe.test", "/v1/%252e%252e%5Cadmin", ""},
		{"stripe.test", "/v1/..;x/admin", ""},
		{"stripe.test", "/v1/%66iles", ""},
		{"stripe.test", "/v1/%2566iles/x", ""},
		{"stripe.test", "/v1//files", ""},
		{"stripe.test", "/v1;x/files", ""},
		{"stripe.test", "/v1%2Ffiles", ""},
		{"stripe.test", "//v1%5Cfiles%2F", ""},
		{"stripe.test", "/v1/x//%79;z=files", "api /v1/x//%79;z=files?"},
		{"stripe.test", "/v1/files//%78", "files /v1/files//%78?"},
	} {
		response := w.ask("GET", c.path, "", "Host: "+c.host)
		if got := text(t, response); c.want != "" && got != c.want {
			t.Errorf("%s%s: %q, want %q", c.host, c.path, got, c.want)
		} else if c.want == "" && (response.Header.Get(outbound.ErrorHeader) == "" ||
			response.StatusCode/100 != 4) {
			t.Errorf("%s%s: %d %q", c.host, c.path, response.StatusCode, got)
		}
	}
	conn, reader := w.dial() // clients in Go escape paths themselves
	fmt.Fprint(conn, "GET /openai/x%2Fé{y} HTTP/1.1\r\nHost: other.test\r\n\r\n")
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := text(t, response), "api /x%2F%C3%A9%7By%7D?"; got != want {
		t.Errorf("a path that is not escaped arrives as %q, want %q", got, want)
	}
}

func TestHeadersAndBytesPassUnchanged(t *testing.T) {
	var got http.Header
	var body []byte
	var length int64
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		got, length = r.Header.Clone(), r.ContentLength
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("X-Request-Id", "req_1")
		w.Header().Set("Connection", "X-Private")
		w.Header().Set("X-Private", "hop")
		w.Header().Set("Penstock-Error", "not ours")
		w.Header()["Content-Type"], w.Header()["Date"] = nil, nil
		w.Write([]byte("\x1f\x8bnot really"))
	}, outbound.Options{}, outbound.Route{})
	sent := string([]byte{0, 1, 2, 255})
	response := w.ask("POST", "/v1", sent, "Authorization: Bearer sk-secret",
		"Idempotency-Key: k1", "Content-Encoding: x", "X-Forwarded-For: 1.2.3.4",
		"Connection: X-Hop", "X-Hop: 1", "Proxy-Authorization: Bearer pst",
		"Penstock-Priority: 3", "Traceparent: t", "User-Agent: OpenAI/JS", "Accept-Encoding: br")
	for name, want := range map[string]string{"Authorization": "Bearer sk-secret",
		"Idempotency-Key": "k1", "Content-Encoding": "x", "X-Forwarded-For": "1.2.3.4",
		"X-Hop": "", "Proxy-Authorization": "", "Penstock-Priority": "", "Connection": "",
		"Traceparent": "t", "User-Agent": "OpenAI/JS", "Accept-Encoding": "br"} {
		if got.Get(name) != want {
			t.Errorf("the upstream got %s %q, want %q", name, got.Get(name), want)
		}
	}
	if string(body) != sent || length != 4 {
		t.Errorf("the upstream got %q of length %d", body, length)
	}
	if got := text(t, response); got != "\x1f\x8bnot really" {
		t.Errorf("the caller got %q", got)
	}
	for name, want := range map[string]string{"Content-Encoding": "gzip", "X-Request-Id": "req_1",
		"X-Private": "", "Penstock-Error": "", "Date": "", "Content-Type": ""} {
		if got := response.Header.Get(name); got != want {
			t.Errorf("the caller got %s %q, want %q", name, got, want)
		}
	}
	if q := w.call(1); q.Priority != 3 {
		t.Errorf("asked for %+v", q)
	}
}

func TestClientsAreAuthenticatedBesideAuthorization(t *testing.T) {
	clients, err := access.Parse(strings.NewReader("clients:\n" + access.Line("app",
		[]string{"submit"}, []string{"api"}, []string{"acme"}, "pst_good") + "\n" +
		access.Line("viewer", []string{"read"}, []string{"*"}, nil, "pst_viewer")))
	if err != nil {
		t.Fatal(err)
	}
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.Header.Get("Authorization"), len(r.Header["Penstock-Authorization"]))
	}, outbound.Options{Clients: func() *access.Clients { return clients }},
		outbound.Route{Key: "{header.X-Tenant}"})
	for _, c := range []struct {
		header []string
		status int
		code   string
	}{
		{nil, 401, "unauthorized"},
		{[]string{"Penstock-Authorization: Bearer pst_bad"}, 401, "unauthorized"},
		{[]string{"Penstock-Authorization: Bearer pst_viewer"}, 403, "forbidden"},
		{[]string{"Penstock-Authorization: Bearer pst_good"}, 200, ""},
		{[]string{"Proxy-Authorization: Bearer pst_good"}, 200, ""},
		{[]string{"Proxy-Authorization: Bearer pst_good", "X-Tenant: other"}, 403, "forbidden"},
	} {
		header := append([]string{"Authorization: Bearer sk-live", "X-Tenant: acme"}, c.header...)
		if len(c.header) == 2 {
			header = append(header[:1], c.header...)
		}
		response := w.ask("GET", "/", "", header...)
		if response.StatusCode != c.status || response.Header.Get(outbound.ErrorHeader) != c.code {
			t.Errorf("%q: %d %v", c.header, response.StatusCode, response.Header)
		}
		if got := text(t, response); c.status == 200 && got != "Bearer sk-live0" {
			t.Errorf("%q: the upstream got %q", c.header, got)
		}
	}
}

// A drainer sends some of them to its target.
func TestUnknownHeadersAreRefused(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{})
	for header, want := range map[string]int{"Penstock-Cots-Tokens: 3": 400,
		"Penstock-Deadline: 1h": 400, "Penstock-Cost: 0": 400, "Penstock-Cost: 2": 200,
		"Penstock-Job: a:1": 200, "X-Penstock: 1": 200} {
		response := w.ask("GET", "/", "", header)
		got := text(t, response)
		name, _, _ := strings.Cut(header, ":")
		if response.StatusCode != want || want == 400 && !strings.Contains(got, name+": ") {
			t.Errorf("%s: %d %s", header, response.StatusCode, got)
		}
	}
}

func TestKeysAreMadeOfTheRequest(t *testing.T) {
	for key, want := range map[string]string{"const": "const",
		"{header.X-Org}": "acme", "{path.2}": "b c", "x-{path.1}-{header.x-org}": "x-a-acme",
		"{credential}": "its hash", "{path.4}": "", "{header.None}": ""} {
		w := begin(t, says("api"), outbound.Options{}, outbound.Route{Prefix: "/p", Key: key})
		response := w.ask("GET", "/p/a/b%20c/d", "", "X-Org: acme", "Authorization: Bearer sk")
		switch {
		case want == "":
			if w.count() > 0 || response.StatusCode != 400 {
				t.Errorf("%s: %d after %d calls", key, response.StatusCode, w.count())
			}
		case key == "{credential}":
			if got := w.call(1).Key; len(got) != 16 {
				t.Errorf("%s: %q", key, got)
			}
		case w.call(1).Key != want:
			t.Errorf("%s: %+v, want %q", key, w.call(1), want)
		}
	}
}

func TestReferencesLeadBackThroughTheProxy(t *testing.T) {
	other := httptest.NewServer(nil)
	defer other.Close()
	var self string
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", strings.ReplaceAll(r.URL.Query().Get("to"), "SELF", self))
		w.Header().Set("Link", fmt.Sprintf(
			`<%s/v3/list?page=2>; rel="next", </v3/list>; rel="first"`, self))
		w.WriteHeader(301)
	}, outbound.Options{}, outbound.Route{Prefix: "/github"},
		outbound.Route{Prefix: "/other", Upstream: other.URL + "/base"})
	self = w.upstream.URL
	for to, want := range map[string]string{
		"SELF/a%2Fb?x=1#y":      w.url + "/github/a%2Fb?x=1#y",
		"/relative":             "/github/relative",
		"https://elsewhere.x/y": "https://elsewhere.x/y",
		other.URL + "/base/z":   w.url + "/other/z",
		other.URL + "/z":        other.URL + "/z",
	} {
		response := w.ask("GET", "/github/x?to="+url.QueryEscape(to), "")
		if got := response.Header.Get("Location"); got != want {
			t.Errorf("%s: leads to %s, want %s", to, got, want)
		}
		want := fmt.Sprintf(
			`<%s/github/v3/list?page=2>; rel="next", </github/v3/list>; rel="first"`, w.url)
		if got := response.Header.Get("Link"); got != want {
			t.Errorf("linked %s, want %s", got, want)
		}
	}
}

func TestOtherPartsOfHTTPPass(t *testing.T) {
	const total = 16 * (8 << 20)
	budget := admit.NewBudget(total)
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/head":
			w.Header().Set("Content-Length", "123")
		case "/304":
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(304)
		case "/204":
			w.WriteHeader(204)
		case "/103":
			w.Header().Set("Link", "<http://"+r.Host+"/x>; rel=preload")
			w.Header().Set("Penstock-Error", "forged")
			w.WriteHeader(103)
			w.Header()["Content-Type"] = nil
			fmt.Fprint(w, "after")
		case "/trailer":
			w.Header().Set("Trailer", "X-Sum, Penstock-Error")
			fmt.Fprint(w, "body")
			w.Header().Set("X-Sum", "7")
			w.Header().Set("Penstock-Error", "forged")
			w.Header().Set(http.TrailerPrefix+"Penstock-State", "forged")
		case "/expect":
			if r.Header.Get("X-Refuse") != "" {
				w.WriteHeader(417)
				return
			}
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		}
	}, outbound.Options{Budget: budget}, outbound.Route{})
	if r := w.ask("HEAD", "/head", ""); r.ContentLength != 123 {
		t.Errorf("HEAD: %d", r.ContentLength)
	}
	if r := w.ask("GET", "/304", ""); r.StatusCode != 304 || r.Header.Get("Etag") != `"x"` {
		t.Errorf("304: %d", r.StatusCode)
	}
	if r := w.ask("DELETE", "/204", ""); r.StatusCode != 204 {
		t.Errorf("204: %d", r.StatusCode)
	}
	var early string
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
			early += fmt.Sprint(code, header.Get("Link"), header.Get("Penstock-Error"))
			return nil
		}})
	if r := w.askWith(ctx, "GET", "/103", ""); text(t, r) != "after" ||
		early != "103<"+w.url+"/x>; rel=preload" || r.Header["Content-Type"] != nil {
		t.Errorf("103: %q, %v", early, r.Header)
	}
	r := w.ask("GET", "/trailer", "", "Te: trailers")
	if body := text(t, r); body != "body" || len(r.Trailer) != 1 ||
		r.Trailer.Get("X-Sum") != "7" {
		t.Errorf("trailer: %q, %v", body, r.Trailer)
	}
	large := strings.Repeat("x", (8<<20)+12345)
	r = w.ask("PUT", "/expect", large, "Expect: 100-continue")
	if text(t, r) != fmt.Sprint(len(large)) {
		t.Errorf("a large body: %d", r.StatusCode)
	}
	if r := w.ask("PUT", "/expect", "x", "Expect: 100-continue"); text(t, r) != "1" {
		t.Errorf("a small body: %d", r.StatusCode)
	}
	waittest.Until(t, "what bodies held is given back", func() bool {
		return budget.Reserve(admit.Client{Operator: true}, total*3/4) == nil
	})
}

func TestCONNECTIsRefusedWithAReason(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{})
	conn, in := w.dial()
	fmt.Fprint(conn, "CONNECT api.openai.com:443 HTTP/1.1\r\nHost: api.openai.com:443\r\n\r\n")
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := text(t, response)
	if response.StatusCode != 405 || !strings.Contains(got, "HTTPS_PROXY") {
		t.Errorf("%d %s", response.StatusCode, got)
	}
}

func TestRoutesAreChecked(t *testing.T) {
	good := outbound.Route{Upstream: "https://api.example.com/v1", Policy: "api",
		Host: "a.b", Prefix: "/x",
		Key: "{client}-{path.1}"}
	for field, change := range map[string]func(*outbound.Route){
		"":            func(*outbound.Route) {},
		"host":        func(r *outbound.Route) { r.Host = "a:1" },
		"prefix":      func(r *outbound.Route) { r.Prefix = "x" },
		"path":        func(r *outbound.Route) { r.Path = "/x/../y" },
		"upstream":    func(r *outbound.Route) { r.Upstream = "ftp://x" },
		"policy":      func(r *outbound.Route) { r.Policy = "" },
		"key":         func(r *outbound.Route) { r.Key = "{path.0}" },
		"max_wait":    func(r *outbound.Route) { r.MaxWait = time.Hour },
		"timeout":     func(r *outbound.Route) { r.Timeout = 2 * time.Hour },
		"on_throttle": func(r *outbound.Route) { r.OnThrottle = "drop" },
		"cost_from_response.points": func(r *outbound.Route) {
			r.CostFromResponse = policy.CostFromResponse{"points": {}}
		},
		"include_usage": func(r *outbound.Route) { r.IncludeUsage = true },
		"like":          func(r *outbound.Route) { r.Like = "githob" },
		"answers[0].means": func(r *outbound.Route) {
			r.Answers = []policy.AnswerRule{{Status: []int{409}, Means: "wait"}}
		},
	} {
		r, found := good, ""
		change(&r)
		r.Check(func(f, _ string, _ ...any) { found += f })
		if found != field {
			t.Errorf("found %q, want %q", found, field)
		}
	}
}

func TestAnUpstreamThatDemandsClientCertificates(t *testing.T) {
	authority := certtest.New(t)
	upstream := httptest.NewUnstartedServer(says("api"))
	upstream.TLS = authority.Client("localhost")
	upstream.TLS.ClientCAs, upstream.TLS.ClientAuth = upstream.TLS.RootCAs,
		tls.RequireAndVerifyClientCert
	upstream.StartTLS()
	defer upstream.Close()
	cert, key := authority.Issue("penstock")
	w := begin(t, says("another"), outbound.Options{},
		outbound.Route{Prefix: "/with", Upstream: upstream.URL,
			TLS: policy.ClientTLS{CA: authority.File, Cert: cert, Key: key}},
		outbound.Route{Prefix: "/without", Upstream: upstream.URL,
			TLS: policy.ClientTLS{CA: authority.File}})
	for path, status := range map[string]int{"/with": 200, "/without": 502} {
		if response := w.ask("GET", path, ""); response.StatusCode != status {
			t.Errorf("%s: %s", path, response.Status)
		}
	}
}

// Paths are for operators, and callers learn that the upstream is not to blame.
func TestMissingFilesOfTLSAreNamedToOperatorsAlone(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "cert.pem")
	files := policy.ClientTLS{Cert: missing, Key: missing}
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{Policy: "unreached", TLS: files})
	response := w.ask("GET", "/", "")
	body := text(t, response)
	if response.StatusCode != 502 || response.Header.Get(outbound.ErrorHeader) != "tls" ||
		strings.Contains(body, missing) || !strings.Contains(body, "cannot read the TLS files") {
		t.Errorf("%s %s: %s", response.Status, response.Header.Get(outbound.ErrorHeader), body)
	}
	got := w.end(1)
	if got.Status != job.SettledUnreached || !strings.Contains(got.Error, missing) {
		t.Errorf("settled as %+v", got)
	}
}
