package sdktest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Limits of a fake API per second.
const (
	mostRequests = 10
	mostTokens   = 1000
	tokensOfOne  = 110
)

// fake is an API of one of the SDKs that answers 429 beyond its sliding limits.
type fake struct {
	*httptest.Server

	mu       sync.Mutex
	seen     []time.Time
	tokens   []time.Time
	requests int
	refused  int
	gone     int
	arrived  chan struct{}
	held     chan struct{}
}

func newFake(t *testing.T, handle http.HandlerFunc) *fake {
	f := &fake{arrived: make(chan struct{}, 1), held: make(chan struct{})}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization")+r.Header.Get("X-Api-Key") == "" {
			http.Error(w, "no credential", http.StatusUnauthorized)
			return
		}
		for name := range r.Header {
			if strings.HasPrefix(name, "Penstock-") {
				t.Errorf("the upstream got %s", name)
			}
		}
		w.Header().Set("Content-Type", "application/json")
		if !f.take(strings.Contains(r.URL.Path, "completions")) {
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, `{"error":{"message":"too many requests","type":"rate_limit_error"}}`)
			return
		}
		switch query := r.URL.Query(); {
		case strings.Contains(r.URL.Path, "hold"):
			f.held <- struct{}{}
			f.leave(r)
		case r.Method == http.MethodGet && !strings.HasPrefix(r.URL.Path, "/repos/"):
			more := query.Get("after")+query.Get("after_id")+query.Get("starting_after") == ""
			id := map[bool]string{true: "one", false: "two"}[more]
			_ = json.NewEncoder(w).Encode(map[string]any{"object": "list", "url": r.URL.Path,
				"has_more": more, "first_id": id, "last_id": id,
				"data": []any{map[string]string{"id": id}}})
		default:
			handle(w, r)
		}
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) take(tokens bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	old := func(at time.Time) bool { return time.Since(at) >= time.Second }
	f.seen, f.tokens = slices.DeleteFunc(f.seen, old), slices.DeleteFunc(f.tokens, old)
	if len(f.seen) >= mostRequests || tokens && (len(f.tokens)+1)*tokensOfOne > mostTokens {
		f.refused++
		return false
	}
	f.seen = append(f.seen, time.Now())
	if tokens {
		f.tokens = append(f.tokens, time.Now())
	}
	return true
}

func (f *fake) counts() (requests, refused, gone int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests, f.refused, f.gone
}

func (f *fake) stream(w http.ResponseWriter, r *http.Request, events ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for i, event := range events {
		fmt.Fprint(w, event, "\n\n")
		_ = http.NewResponseController(w).Flush()
		if i == 0 {
			select {
			case <-f.arrived:
			case <-r.Context().Done():
				f.leave(r)
				return
			}
		}
	}
}

func (f *fake) leave(r *http.Request) {
	<-r.Context().Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone++
}

const (
	completion = `{"id":"c","object":"chat.completion","created":1,"model":"gpt-x","choices":[{"index":0,` +
		`"finish_reason":"stop","message":{"role":"assistant","content":"hi"}}],` +
		`"usage":{"prompt_tokens":10,"completion_tokens":100,"total_tokens":110}}`
	chunk = `data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"gpt-x",` +
		`"choices":[{"index":0,"delta":{"content":"%s"}}]}`
	message = `{"id":"m","type":"message","role":"assistant","model":"claude-x","stop_reason":"end_turn",` +
		`"content":[{"type":"text","text":"hi"}],"usage":{"input_tokens":10,"output_tokens":100}}`
)

func asks(r *http.Request) (body map[string]any) {
	text, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(text, &body)
	return body
}

func newOpenAI(t *testing.T) (f *fake) {
	f = newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if body := asks(r); body["stream"] != true {
			fmt.Fprint(w, completion)
			return
		}
		f.stream(w, r, fmt.Sprintf(chunk, "hel"), fmt.Sprintf(chunk, "lo"), "data: [DONE]")
	})
	return f
}

func newAnthropic(t *testing.T) (f *fake) {
	f = newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if body := asks(r); body["stream"] != true {
			fmt.Fprint(w, message)
			return
		}
		event := func(kind, more string) string {
			return fmt.Sprintf("event: %s\ndata: {\"type\":%[1]q%s}", kind, more)
		}
		delta := `,"index":0,"delta":{"type":"text_delta","text":"%s"}`
		f.stream(w, r, event("message_start", `,"message":{"id":"m","type":"message",`+
			`"role":"assistant","model":"claude-x","content":[],"usage":{"input_tokens":10,`+
			`"output_tokens":1}}`)+"\n\n"+
			event("content_block_start", `,"index":0,"content_block":{"type":"text","text":""}`)+
			"\n\n"+event("content_block_delta", fmt.Sprintf(delta, "hel")),
			event("content_block_delta", fmt.Sprintf(delta, "lo")),
			event("content_block_stop", `,"index":0`),
			event("message_delta", `,"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":9}`),
			event("message_stop", ""))
	})
	return f
}

func newStripe(t *testing.T) *fake {
	return newFake(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") == "" {
			t.Error("no Idempotency-Key")
		}
		_ = r.ParseForm()
		_ = json.NewEncoder(w).Encode(map[string]any{"id": "cus_1", "object": "customer",
			"name": r.PostForm.Get("name")})
	})
}

func newFiles(t *testing.T) *fake {
	return newFake(t, func(w http.ResponseWriter, r *http.Request) {
		file, _, err := r.FormFile("file")
		if err != nil {
			t.Error(err)
			return
		}
		if text, err := io.ReadAll(file); err != nil || string(text) != "\x00binary\xff" {
			t.Errorf("the file is %q, %v", text, err)
		}
		fmt.Fprint(w, `{"id":"file_1","object":"file"}`)
	})
}

func newGitHub(t *testing.T) (f *fake) {
	f = newFake(t, func(w http.ResponseWriter, r *http.Request) {
		page, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("page"), "1"))
		if err != nil {
			t.Error(err)
		}
		if page < 3 {
			w.Header().Set("Link", fmt.Sprintf(`<%s/repos/o/r/issues?page=%d>; rel="next"`, f.URL,
				page+1))
		}
		fmt.Fprintf(w, `[{"number":%d},{"number":%d}]`, 2*page-1, 2*page)
	})
	return f
}
