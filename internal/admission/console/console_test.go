package console

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(target string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	New().ServeHTTP(w, r)
	return w
}

func TestThePageMayLoadNothingFromElsewhere(t *testing.T) {
	for _, target := range []string{Root, Root + "main.js", Root + "none.js"} {
		header := get(target).Header()
		if p := header.Get("Content-Security-Policy"); !strings.HasPrefix(p,
			"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; ") ||
			strings.Contains(p, "unsafe") || strings.Contains(p, "*") {
			t.Errorf("%s has the policy %q", target, p)
		}
		if header.Get("X-Content-Type-Options") != "nosniff" ||
			header.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("%s: %v", target, header)
		}
	}
}

func TestBrowsersAreLedToTheConsole(t *testing.T) {
	page := "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
	for _, c := range []struct {
		path, accept string
		status       int
	}{
		{"/", page, 302}, {"/", "*/*", 404}, {"/", "", 404}, {"/console", "", 302},
		{Root, "", 200}, {Root + "views/bucket.js", "", 200}, {Root + "none", page, 404},
		{Root + "static/main.js", "", 404}, {Root + "../console.go", "", 404},
		{Root + "views/", "", 404},
	} {
		w := get(c.path, "Accept", c.accept)
		if w.Code != c.status || w.Code == 302 && w.Header().Get("Location") != Root {
			t.Errorf("%s for %q: %d to %q", c.path, c.accept, w.Code, w.Header().Get("Location"))
		}
	}
	r := httptest.NewRequest(http.MethodPost, Root, nil)
	w := httptest.NewRecorder()
	if New().ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestAFileThatABrowserHasIsNotSentAgain(t *testing.T) {
	first := get(Root + "main.js")
	if first.Header().Get("Cache-Control") != "no-cache" ||
		!strings.HasPrefix(first.Header().Get("Content-Type"), "text/javascript") {
		t.Errorf("%v", first.Header())
	}
	again := get(Root+"main.js", "If-None-Match", first.Header().Get("ETag"))
	if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("%d with %d bytes", again.Code, again.Body.Len())
	}
}

var (
	imported = regexp.MustCompile(`(?:from|import) "([^"]+)"`)
	unsafe   = regexp.MustCompile(
		`innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|new Function|import\(|https?://`)
)

// Text of jobs and targets must stay text, and no file may name another host, except for SVG's
// namespaces.
func TestFilesAreSmallAndImportEachOther(t *testing.T) {
	err := fs.WalkDir(static, "static", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		body, err := static.ReadFile(name)
		text := strings.ReplaceAll(string(body), "http://www.w3.org/2000/svg", "")
		if lines := strings.Count(text, "\n"); lines > 350 {
			t.Errorf("%s has %d lines", name, lines)
		}
		if found := unsafe.FindString(text); found != "" {
			t.Errorf("%s has %q", name, found)
		}
		if kinds[path.Ext(name)] == "" {
			t.Errorf("%s is of no kind that is served", name)
		}
		for _, m := range imported.FindAllStringSubmatch(text, -1) {
			if _, err := fs.Stat(static, path.Join(path.Dir(name), m[1])); err != nil {
				t.Errorf("%s imports %s, which is not there", name, m[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
