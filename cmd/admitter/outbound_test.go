package main

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/kit/certtest"
)

// Clients of the proxy authenticate by certificates, because Authorization belongs to the upstream.
func TestOutboundCallsOverTLS(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "websocket")
			w.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		w.Header().Set("Location", "http://"+r.Host+"/next")
		fmt.Fprint(w, r.Header.Get("Authorization"))
	}))
	defer upstream.Close()
	authority := certtest.New(t)
	cert, key := authority.Issue("proxy.test")
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	const clients = "clients: [{name: app, rights: [submit], policies: [api], " +
		"certificates: [app.test]}]"
	if err := os.WriteFile(tokens, []byte(clients), 0o600); err != nil {
		t.Fatal(err)
	}
	p := launch(t, "--drain", "--http-tokens", tokens, "--config", configure(t, fmt.Sprintf(`
outbound:
  - listen: 127.0.0.1:0
    tls: {cert: '%s', key: '%s', client_ca: '%s'}
    routes: [{upstream: '%s', policy: api}]
policies: [{name: api, algorithm: leaking_bucket, outflow: 100/s, capacity: 10}]
`, cert, key, authority.File, upstream.URL)))
	words, err := p.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"app.test": 200, "other.test": 401, "": 401} {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: authority.Client(name)}}
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://"+words["outbound"], nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer sk-upstream")
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		client.CloseIdleConnections()
		if err != nil || response.StatusCode != want ||
			want == 200 && (string(text) != "Bearer sk-upstream" ||
				response.Header.Get("Location") != "https://"+words["outbound"]+"/next") {
			t.Errorf("%q: %d %q %v, %v", name, response.StatusCode, text, response.Header, err)
		}
	}
	secured, err := tls.Dial("tcp", words["outbound"], authority.Client("app.test"))
	if err != nil {
		t.Fatal(err)
	}
	defer secured.Close()
	fmt.Fprint(secured, "GET / HTTP/1.1\r\nHost: proxy.test\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\n\r\n")
	if r, err := http.ReadResponse(bufio.NewReader(secured), nil); err != nil ||
		r.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("a WebSocket over TLS: %v, %v", r, err)
	}
	secured.Close()
	p.stop()
}

func TestRoutesOfOutboundCallsAreFollowed(t *testing.T) {
	t.Parallel()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, r.URL.Path)
	}))
	defer upstream.Close()
	const text = `
outbound: [{listen: '127.0.0.1:0', routes: [{prefix: %s, upstream: '%s', policy: api}]}]
policies: [{name: api, algorithm: leaking_bucket, outflow: 100/s, capacity: 10}]
`
	file := configure(t, fmt.Sprintf(text, "/one", upstream.URL))
	p := launch(t, "--drain", "--config", file)
	words, err := p.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	asked := func(path string) (status int) {
		r, err := http.NewRequestWithContext(t.Context(), "GET",
			"http://"+words["outbound"]+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	if one, two := asked("/one/x"), asked("/two/x"); one != 200 || two != 404 {
		t.Errorf("before: %d, %d", one, two)
	}
	rewrite(t, file, fmt.Sprintf(text, "/two", upstream.URL))
	eventually(t, "the new route counts", func() bool { return asked("/two/x") == 200 })
	if one := asked("/one/x"); one != 404 {
		t.Errorf("the former route answers %d", one)
	}
	rewrite(t, file, strings.Replace(fmt.Sprintf(text, "/three", upstream.URL), "capacity: 10",
		"capacity: 10, partitions: 2", 1))
	p.logs(1, "policy api: partitions: cannot change")
	if two, three := asked("/two/x"), asked("/three/x"); two != 200 || three != 404 {
		t.Errorf("beside refused policies: %d, %d", two, three)
	}
	p.stop()
	if strings.Contains(p.Log.String(), "restart") {
		t.Errorf("a restart is asked for:\n%s", p.Log)
	}
}

func TestMistakesOfOutboundRoutesAreReported(t *testing.T) {
	_, err := config.Load(strings.NewReader("outbound: [{listen: '0.0.0.0:1', routes: "+
		"[{upstream: x, policy: a, max_wait: 1h}]}, {listen: ':x'}]"), nil)
	for _, want := range []string{"outbound[0].listen: ", "outbound[0].routes[0].upstream: ",
		"outbound[0].routes[0].max_wait: ", "outbound[1].listen: ",
		"outbound[1].routes: is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
