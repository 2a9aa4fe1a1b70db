package permits_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/penstock-mq/penstock/admission/permits"
	"github.com/penstock-mq/penstock/internal/answers"
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
	response, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	heard := permits.Hear(response, answers.For(nil, "github", ""), permits.Listening{})
	text, err := io.ReadAll(response.Body)
	if heard.Partly() || string(text) != "half" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", text, err)
	}
}
