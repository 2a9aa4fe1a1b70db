package main

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

type collected struct {
	t  *testing.T
	mu sync.Mutex
	by map[string][]*spans.Span
}

func (c *collected) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	var request collector.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(text, &request)
	}
	if err != nil || r.URL.Path != "/v1/traces" {
		c.t.Errorf("%s: %v", r.URL, err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				name, _, _ := strings.Cut(s.Name, " ")
				c.by[name] = append(c.by[name], s)
			}
		}
	}
}

func TestAJobIsOneTrace(t *testing.T) {
	c := &collected{t: t, by: map[string][]*spans.Span{}}
	otlp := httptest.NewServer(c)
	defer otlp.Close()
	var mu sync.Mutex
	var arrived []string
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if arrived = append(arrived, r.Header.Get("traceparent")); len(arrived) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer target.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	p := launch(t, "--drain", "--config", configure(t, "policies:\n  - {name: mail, algorithm: "+
		"leaking_bucket, outflow: 100/s, capacity: 5, retry: {backoff: 1ms}, "+
		"target: {http: {url: '"+target.URL+"'}}}\n")).ready()
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	p.sends("POST", "/v1/jobs/mail/acme", "x", 202, "traceparent", "00-"+trace+"-"+span+"-01",
		"tracestate", "vendor=1")
	eventually(t, "all spans have come", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.by["attempt"]) == 2 && len(c.by["wait"]) == 1 && len(c.by["submit"]) == 1
	})
	told := p.ask("GET", "/metrics", "", "Accept", "application/openmetrics-text").body
	for _, metric := range []string{"penstock_start_lag_seconds", "penstock_wait_seconds"} {
		exemplar := regexp.MustCompile(`(?m)^` + metric + `_bucket\{.*\} [0-9]+ # \{trace_id="` +
			trace + `"\} `)
		if !exemplar.MatchString(told) {
			t.Errorf("no exemplar of %s:\n%s", metric, told)
		}
	}
	p.stop()
	submitted, waited, tries := c.by["submit"][0], c.by["wait"][0], c.by["attempt"]
	for i, s := range append([]*spans.Span{submitted, waited}, tries...) {
		parent := hex.EncodeToString(submitted.SpanId)
		if i == 0 {
			parent = span
		}
		if hex.EncodeToString(s.TraceId) != trace || hex.EncodeToString(s.ParentSpanId) != parent ||
			s.TraceState != "vendor=1" {
			t.Errorf("%s is not below %s: %v", s.Name, parent, s)
		}
	}
	for i, s := range tries {
		if want := "00-" + trace + "-" + hex.EncodeToString(s.SpanId) + "-01"; arrived[i] != want {
			t.Errorf("attempt %d: the target is told %s, want %s", i+1, arrived[i], want)
		}
	}
	if failed, done := tries[0].Status.GetCode(), tries[1].Status.GetCode(); failed !=
		spans.Status_STATUS_CODE_ERROR || done != spans.Status_STATUS_CODE_UNSET {
		t.Errorf("the attempts are %s and %s", failed, done)
	}
	if waited.EndTimeUnixNano != tries[0].StartTimeUnixNano {
		t.Errorf("the wait ends at %d, and the first attempt begins at %d", waited.EndTimeUnixNano,
			tries[0].StartTimeUnixNano)
	}
}

// The wait and the upstream's answer are spans; the upstream gets a trace header only if the caller
// sent one.
func TestACallIsPartOfItsCallersTrace(t *testing.T) {
	c := &collected{t: t, by: map[string][]*spans.Span{}}
	otlp := httptest.NewServer(c)
	defer otlp.Close()
	arrived := make(chan []string, 2)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header["Traceparent"]
	}))
	defer upstream.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
	p := launch(t, "--drain", "--config", configure(t, "outbound: [{listen: '127.0.0.1:0', "+
		"routes: [{upstream: '"+upstream.URL+"', policy: api}]}]\npolicies: [{name: api, "+
		"algorithm: leaking_bucket, outflow: 100/s, capacity: 5}]\n"))
	words, err := p.Ready(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const trace, span = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	traced := http.Header{"Traceparent": {"00-" + trace + "-" + span + "-01"}}
	for _, header := range []http.Header{traced, {}} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+words["outbound"], nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header = header
		response, err := http.DefaultClient.Do(r)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatal(response, err)
		}
		response.Body.Close()
	}
	eventually(t, "all spans have come", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.by["call"]) == 2 && len(c.by["wait"]) == 2
	})
	p.stop()
	told, alone := <-arrived, <-arrived
	if waited, called := c.by["wait"][0], c.by["call"][0]; hex.EncodeToString(waited.TraceId) !=
		trace || hex.EncodeToString(waited.ParentSpanId) != span ||
		hex.EncodeToString(called.ParentSpanId) != span || len(told) != 1 ||
		told[0] != "00-"+trace+"-"+hex.EncodeToString(called.SpanId)+"-01" {
		t.Errorf("the upstream is told %s, of %v and %v", told, waited, called)
	}
	if waited, called := c.by["wait"][1], c.by["call"][1]; len(alone) != 0 ||
		hex.EncodeToString(called.ParentSpanId) != hex.EncodeToString(waited.SpanId) {
		t.Errorf("the upstream is told %s, of %v and %v", alone, waited, called)
	}
}

func TestUnsupportedTraceExportersAreRefused(t *testing.T) {
	for name, value := range map[string]string{"OTEL_TRACES_EXPORTER": "zipkin",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
			t.Setenv(name, value)
			p := launch(t, "--config", configure(t, ""))
			if status := p.end(); status == 0 || !strings.Contains(p.Log.String(), name+" is ") {
				t.Errorf("%d %s", status, p.Log)
			}
		})
	}
}
