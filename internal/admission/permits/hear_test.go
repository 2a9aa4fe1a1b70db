package permits_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/base/answers"
)

func TestABodyThatBreaksOffDoesNotLookWhole(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		w.WriteHeader(http.StatusForbidden)
		if _, err := io.WriteString(w, "half"); err != nil {
			t.Error(err)
		}
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ended permits.Result
	response, err := permits.Sender{Base: server.Client().Transport,
		Rules: answers.For(nil, "github", ""),
		Ended: func(_ *http.Response, _ answers.Verdict, r permits.Result) { ended = r }}.Send(
		t.Context(), request, permits.Lent("x", time.Now(), 0, nil))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	response.Body.Close()
	if ended.Status != permits.Done || string(text) != "half" ||
		!errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%+v: %q, %v", ended, text, err)
	}
}
