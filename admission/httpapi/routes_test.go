package httpapi

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/admission/manage"
	"github.com/penstock-mq/penstock/queue"
)

// untold are the routes that docs/api.md does not list: they say that a key was forgotten, or let a
// policy's target be this process while somebody tries things out.
var untold = []string{
	"DELETE /v1/check/{policy}", "GET /v1/check/{policy}", "POST /v1/check/{policy}",
	"POST /v1/jobs/{policy}", "POST /v1/purge/{policy}", "POST /healthz",
}

// documented are the routes of docs/api.md: the first cells of its first table.
func documented(t *testing.T, page string) []string {
	t.Helper()
	_, table, _ := strings.Cut(page, "\n| | |\n|---|---|\n")
	table, _, _ = strings.Cut(table, "\n\n")
	routes := map[string]bool{}
	for row := range strings.Lines(table) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		var methods []string
		for _, word := range strings.Fields(strings.ReplaceAll(cell, "`", "")) {
			if !strings.HasPrefix(word, "/") {
				methods = append(methods, word)
				continue
			}
			path, _, _ := strings.Cut(word, "?")
			path = strings.Replace(path, "{policy}:{sequence}", "{job}", 1)
			some, rest, optional := strings.Cut(path, "[")
			for _, m := range methods {
				routes[m+" "+some] = true
				if optional {
					routes[m+" "+some+strings.TrimSuffix(rest, "]")] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(routes))
}

func allRoutes() []route { return New(&fakeService{}, Options{}).(*handler).routes() }

func TestTheDocumentationListsTheRoutesThatThereAre(t *testing.T) {
	text, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	var served []string
	for _, rt := range allRoutes() {
		path, query, _ := strings.Cut(rt.path, "?")
		if name := rt.method + " " + path; !slices.Contains(untold, name) {
			served = append(served, name)
		}
		for name := range strings.FieldsFuncSeq(query, func(c rune) bool { return c == '&' }) {
			if !strings.Contains(page, name+"=") {
				t.Errorf("docs/api.md does not tell of the parameter %s of %s %s", name, rt.method,
					path)
			}
		}
	}
	slices.Sort(served)
	told := documented(t, page)
	for _, name := range served {
		if !slices.Contains(told, name) {
			t.Errorf("docs/api.md does not list %s", name)
		}
	}
	for _, name := range told {
		if !slices.Contains(served, name) {
			t.Errorf("docs/api.md lists %s, which is not served", name)
		}
	}
}

func TestEachRouteAsksForItsRights(t *testing.T) {
	h := New(&fakeService{},
		Options{Hosts: testHosts, Management: manage.New(new(queue.Broker), nil, manage.Options{})})
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
				continue // it would be asked
			}
			if got := send(c.name, c.value); got == c.refused != c.when {
				t.Errorf("%s %s with %s: %s gets %d", rt.method, path, c.name, c.value, got)
			}
		}
	}
}
