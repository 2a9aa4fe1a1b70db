package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/manage"
	"github.com/penstock-mq/penstock/internal/queue/jet"
)

func allRoutes() []route { return New(&fakeService{}, Options{}).(*handler).routes() }

func TestEachRouteAsksForItsRights(t *testing.T) {
	h := New(&fakeService{},
		Options{Hosts: testHosts, Management: manage.New(new(jet.Broker), nil, manage.Options{})})
	for _, rt := range allRoutes() {
		path, _, _ := strings.Cut(rt.path, "?")
		path = strings.NewReplacer("{policy}", "p", "{key...}", "k", "{job}", "p:1", "{id}",
			"1").Replace(path)
		send := func(name, value string) int {
			r := httptest.NewRequest(rt.method, path, nil)
			if r.Header.Set(name, value); name == "Host" {
				r.Host = value
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			return w.Code
		}
		changes := rt.method != http.MethodGet
		for _, c := range []struct {
			name, value string
			refused     int
			when        bool
		}{
			{"Host", "elsewhere.test", http.StatusMisdirectedRequest,
				!strings.HasSuffix(path, "z") && path != "/openapi.yaml"},
			{"Penstock-Job", "p:1", http.StatusForbidden, strings.HasPrefix(path, root)},
			{"Sec-Fetch-Site", "cross-site", http.StatusForbidden,
				strings.HasPrefix(path, root) && changes},
		} {
			if !c.when && strings.HasPrefix(path, root) {
				continue
			}
			if got := send(c.name, c.value); got == c.refused != c.when {
				t.Errorf("%s %s with %s: %s gets %d", rt.method, path, c.name, c.value, got)
			}
		}
	}
}
