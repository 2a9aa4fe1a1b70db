// Package console serves the operators' web console: static files, without a build step or external
// resources, that use the HTTP API.
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

// Root is the path below which the console is served.
const Root = "/console/"

//go:embed static
var static embed.FS

// policy permits only this origin's scripts and requests, against injected text.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
	"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'"

type file struct {
	kind string // content type
	etag string
	body []byte
}

// New serves [Root], and redirects / and /console there.
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
		panic(err)
	}
	return pages(files)
}

// not the machine's list
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

type pages map[string]file

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
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	case !below && (name == strings.TrimSuffix(Root, "/") || wantsPage(r)):
		http.Redirect(w, r, Root, http.StatusFound)
	case !below || !found:
		http.Error(w, "not found; the console is at "+Root, http.StatusNotFound)
	case r.Header.Get("If-None-Match") == f.etag:
		w.WriteHeader(http.StatusNotModified)
	default:
		header.Set("Content-Type", f.kind)
		header.Set("Cache-Control", "no-cache")
		header.Set("ETag", f.etag)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
	}
}

func wantsPage(r *http.Request) bool {
	for kind := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		if k, _, err := mime.ParseMediaType(kind); err == nil && k == "text/html" {
			return true
		}
	}
	return false
}
