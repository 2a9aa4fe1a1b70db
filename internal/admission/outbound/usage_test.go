package outbound_test

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-mq/penstock/internal/admission/outbound"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

func coded(t *testing.T, coding, body string) []byte {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&b)
	case "br":
		w = brotli.NewWriter(&b)
	case "zstd":
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	default:
		return []byte(body)
	}
	if _, err := io.WriteString(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestTokensAreSettledByTheAnswer(t *testing.T) {
	const anthropic = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":" +
		"{\"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\n\nevent: x\ndata: {\"x\":1}\n\n" +
		"event: message_delta\ndata: {\"usage\":{\"output_tokens\":15}}\n\n"
	for _, c := range []struct {
		kind, coding, body string
		want               int64
	}{
		{"application/json", "", `{"usage":{"total_tokens":9,"prompt_tokens":4}}`, 9},
		{"application/json", "gzip", `{"usage":{"prompt_tokens":4,"completion_tokens":3}}`, 7},
		{"application/json", "br", `{"usage":{"input_tokens":4,"output_tokens":3}}`, 7},
		{"application/json", "zstd", `{"usage":{"input_tokens":4,"cache_creation_input_tokens":2}}`,
			6},
		{"application/json", "", `{"error":{"message":"x"}, "message": "text"}`, 0},
		{"application/json", "gzip", "", 0},
		{"text/event-stream; charset=utf-8", "", anthropic, 40},
		{"text/event-stream", "gzip", anthropic, 40},
		{"text/event-stream", "br", "data: {\"usage\":null}\n\ndata: {\"usage\":" +
			"{\"total_tokens\":5}}\n\ndata: [DONE]\n\n", 5},
		{"text/event-stream", "", "data: {\"type\":\"response.completed\",\"response\":" +
			"{\"usage\":{\"total_tokens\":11}}}\n\n", 11},
		{"text/event-stream", "", "data: {}\n\n", 0},
	} {
		body := coded(t, c.coding, c.body)
		if c.body == "" {
			body = []byte("this is no gzip")
		}
		w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", c.kind)
			w.Header().Set("Content-Encoding", c.coding)
			w.Write(body)
		}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
		if got := text(t, w.ask("POST", "/", "{}")); got != string(body) {
			t.Errorf("%+v: the caller got %q", c, got)
		}
		if r := w.end(1); r.Used["tokens"] != c.want {
			t.Errorf("%+v: settled %+v", c, r)
		}
	}
}

func TestOtherCostsAreSettledByTheAnswer(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Price", "3")
		if r.URL.Path == "/stream" {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"cost\":{\"points\":1}}\n\n"+
				"data: {\"cost\":{\"points\":4.5}}\n\n")
			return
		}
		fmt.Fprint(w, `{"cost":{"points":12},"usage":{"total_tokens":7}}`)
	}, outbound.Options{}, outbound.Route{Tokens: "tokens", CostFromResponse: policy.
		CostFromResponse{"points": {JSON: "cost.points"}, "price": {Header: "X-Price"}}})
	for i, c := range []struct{ path, want string }{
		{"/", "map[points:12 price:3 tokens:7]"}, {"/stream", "map[points:5 price:3]"}} {
		text(t, w.ask("POST", c.path, "{}"))
		if got := fmt.Sprint(w.end(i + 1).Used); got != c.want {
			t.Errorf("%s: settled %s, want %s", c.path, got, c.want)
		}
	}
}

// frames are a WebSocket server's messages: in fragments, with a ping between, and one compressor
// for all.
func frames(t *testing.T, packed bool, messages ...string) []byte {
	t.Helper()
	var out, coded bytes.Buffer
	packer, err := flate.NewWriter(&coded, flate.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	frame := func(head byte, payload string) {
		out.Write([]byte{head, 126, byte(len(payload) >> 8), byte(len(payload))})
		out.WriteString(payload)
	}
	for _, m := range messages {
		head := byte(0x01)
		if packed {
			coded.Reset()
			if _, err := io.WriteString(packer, m); err != nil || packer.Flush() != nil {
				t.Fatal(err)
			}
			head, m = 0x41, strings.TrimSuffix(coded.String(), "\x00\x00\xff\xff")
		}
		frame(head, m[:5])
		out.Write([]byte{0x89, 2, 'h', 'i'})
		frame(0x80, m[5:])
	}
	return out.Bytes()
}

func upgrade(t *testing.T, w http.ResponseWriter, talk func(*bufio.ReadWriter)) {
	w.Header().Set("Connection", "Upgrade")
	w.Header().Set("Upgrade", "websocket")
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	talk(rw)
}

func TestTokensOfAWebSocketAreTheSumOfItsEvents(t *testing.T) {
	for _, packed := range []bool{false, true} {
		sent := frames(t, packed, `{"type":"response.done","response":{"usage":{"total_tokens":20}}}`,
			`{"type":"response.audio.delta","delta":"AAAA"}`,
			`{"type":"response.done","response":{"usage":{"total_tokens":22}}}`)
		w := begin(t, func(w http.ResponseWriter, r *http.Request) {
			if packed {
				w.Header().Set("Sec-WebSocket-Extensions", "permessage-deflate")
			}
			upgrade(t, w, func(rw *bufio.ReadWriter) {
				rw.Write(sent)
				rw.Flush()
				rw.ReadString('\n')
			})
		}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
		conn, in := w.upgraded()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(in, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("the caller got %q, %v", got, err)
		}
		conn.Close()
		if r := w.end(1); r.Used["tokens"] != 42 {
			t.Errorf("packed: %v: settled %+v", packed, r)
		}
	}
}

func TestTokensAreEstimatedFromTheRequest(t *testing.T) {
	w := begin(t, says("api"), outbound.Options{}, outbound.Route{Tokens: "tokens"})
	for i, c := range []struct {
		body, header string
		want         int64
	}{
		{`{"max_tokens":100}`, "X: y", 105},
		{`{"max_completion_tokens":10}`, "X: y", 17},
		{`{"max_output_tokens":1e3}`, "X: y", 1007},
		{`{"max_tokens":-5}`, "X: y", 5},
		{`{"generationConfig":{"maxOutputTokens":7.0}}`, "X: y", 18},
		{"not JSON", "X: y", 2},
		{`{"image":"data:image/png;base64,` + strings.Repeat("iVBORw0K", 1<<16) + `","max_tokens":5}`,
			"X: y", 1000 + 5 + 13},
		{`{"max_tokens":100}`, "Penstock-Cost-Tokens: 3", 3},
	} {
		w.ask("POST", "/", c.body, c.header)
		if q := w.call(i + 1); q.Costs["tokens"] != c.want {
			t.Errorf("%+v: asked for %+v", c, q)
		}
	}
}

func TestStreamsCanBeMadeToNameTheirUsage(t *testing.T) {
	var got string
	w := begin(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = string(body)
	}, outbound.Options{}, outbound.Route{Tokens: "tokens", IncludeUsage: true})
	for sent, want := range map[string]string{
		`{"stream":true}`:                     `{"stream_options":{"include_usage":true},"stream":true}`,
		`{"stream":false}`:                    `{"stream":false}`,
		`{"stream":true,"stream_options":{}}`: `{"stream":true,"stream_options":{}}`,
		`[{"stream":true}]`:                   `[{"stream":true}]`,
		` {"stream":true, "messages":[{"a":1}]}`: ` {"stream_options":{"include_usage":true},` +
			`"stream":true, "messages":[{"a":1}]}`,
	} {
		if w.ask("POST", "/", sent); got != want {
			t.Errorf("%s: sent %s", sent, got)
		}
	}
}

func TestWebSocketsAreOneStart(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			t.Error(r.Header)
		}
		upgrade(t, w, func(rw *bufio.ReadWriter) {
			line, _ := rw.ReadString('\n')
			fmt.Fprint(rw, "echo ", line)
			rw.Flush()
		})
	}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
	conn, in := w.upgraded()
	if w.ended() > 0 {
		t.Error("settled while open")
	}
	w.stop()
	fmt.Fprint(conn, "hello\n")
	if rest, err := io.ReadAll(in); err != nil || string(rest) != "echo hello\n" {
		t.Errorf("%q, %v", rest, err)
	}
	if r := w.end(1); r.Status != job.SettledDone {
		t.Errorf("settled %+v", r)
	}
}

// Through h2c a caller could send any number of requests, to any path.
func TestOnlyWebSocketsAreUpgrades(t *testing.T) {
	w := begin(t, func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%q %q", r.Header["Connection"], r.Header["Upgrade"])
	}, outbound.Options{}, outbound.Route{})
	for _, protocol := range []string{"h2c", "TLS/1.0, HTTP/1.1", "websocket, h2c"} {
		r := w.ask("GET", "/", "", "Connection: Upgrade, HTTP2-Settings", "Upgrade: "+protocol,
			"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")
		if got := text(t, r); r.StatusCode != 200 || got != "[] []" {
			t.Errorf("%s: %d %s", protocol, r.StatusCode, got)
		}
	}
}
