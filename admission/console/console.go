// Package console serves the console: one page for people who run queues, which shows what waits,
// since when and why, and steers it. The page is a client of the HTTP API like any other. It is
// made of plain files (static), which browsers run as they are: no build step, nothing from
// elsewhere.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"
)

// Root is the path below which the console lies.
const Root = "/console/"

//go:embed static
var static embed.FS

// policy is what the page may do: run and fetch what this origin serves, and nothing else. What an
// attacker brings into the page, such as a job's body, is text for that reason as well.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'"

// file is one of the page.
type file struct {
	kind string // content type
	etag string
	body []byte
}

// New makes the handler of [Root], and of / and /console, which lead there.
func New() http.Handler {
	files := map[string]file{}
	err := fs.WalkDir(static, "static", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		body, err := static.ReadFile(name)
		sum := sha256.Sum256(body)
		files[strings.TrimPrefix(name, "static/")] = file{kinds[path.Ext(name)],
			`"` + hex.EncodeToString(sum[:8]) + `"`, body}
		return err
	})
	if err != nil {
		panic(err) // they are in the program
	}
	return pages(files)
}

// kinds are the types of files, which must not depend on the machine's own list.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// pages are the files by their path below Root.
type pages map[string]file

// ServeHTTP implements [http.Handler].
func (p pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": policy,
		"X-Content-Type-Options":  "nosniff",
		"X-Frame-Options":         "DENY",
		"Referrer-Policy":         "no-referrer",
	} {
		header.Set(name, value)
	}
	name, below := strings.CutPrefix(r.URL.EscapedPath(), Root)
	if name == "" {
		name = "index.html"
	}
	f, found := p[name]
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "the console is read", http.StatusMethodNotAllowed)
	case !below && (name == strings.TrimSuffix(Root, "/") || wantsPage(r)):
		http.Redirect(w, r, Root, http.StatusFound)
	case !below || !found:
		http.Error(w, "the console has no such file; it is at "+Root, http.StatusNotFound)
	case r.Header.Get("If-None-Match") == f.etag:
		w.WriteHeader(http.StatusNotModified)
	default:
		header.Set("Content-Type", f.kind)
		header.Set("Cache-Control", "no-cache") // asks whether it is still the one
		header.Set("ETag", f.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
	}
}

// wantsPage reports whether a browser asks for something to show.
func wantsPage(r *http.Request) bool {
	for kind := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if k, _, err := mime.ParseMediaType(kind); err == nil && k == "text/html" {
			return true
		}
	}
	return false
}
