package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestTheDescriptionIsForEverybody(t *testing.T) {
	h := New(&fakeService{}, Options{Clients: clientsOf(t, "ci rights: [check], policies: [p]")})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi.yaml", nil))
	if w.Code != http.StatusOK || !strings.HasPrefix(w.Body.String(), "# The HTTP API") {
		t.Errorf("%d %.40q", w.Code, w.Body)
	}
}
