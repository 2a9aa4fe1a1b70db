package httptarget

import (
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/base/answers"
)

// A job's path stays on the target's host and below its base, however the server parses it.
func FuzzResolve(f *testing.F) {
	for _, seed := range []string{"", "/", "/a//b?c=/..", "/%2e%2E/x", "//host", "///a", `/..\x`,
		"/..%5cx", "/a/..;/b", "/%00", "/a#b", "/?x", "/:80"} {
		f.Add("http://target:80/base/", seed)
	}
	f.Add("https://u:p@target/a%2Fb?key=1", "/x?y")
	f.Fuzz(func(t *testing.T, base, given string) {
		from, err := url.Parse(base)
		if err != nil || from.Host == "" || from.Scheme != "http" && from.Scheme != "https" ||
			from.RawPath != "" ||
			from.Path != path.Clean("/"+from.Path) || from.Fragment != "" {
			return
		}
		text, err := (&target{base: from}).resolve(given)
		if err != nil {
			return
		}
		to, err := url.Parse(text)
		if err != nil {
			t.Fatalf("%q below %q is %q: %v", given, base, text, err)
		}
		below := path.Clean(strings.ReplaceAll(to.Path, `\`, "/"))
		if to.Scheme != from.Scheme || to.Host != from.Host ||
			to.User.String() != from.User.String() ||
			below != from.Path &&
				!strings.HasPrefix(below, strings.TrimSuffix(from.Path, "/")+"/") {
			t.Fatalf("%q below %q is %q", given, base, text)
		}
	})
}

func FuzzJudge(f *testing.F) {
	for _, seed := range []string{"", "5", " 5 ", "-1", "1.5", "9223372036854775808",
		"Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", "soon"} {
		f.Add(seed, 429, "slow\ndown")
	}
	f.Add("", 99, "\xff")
	f.Fuzz(func(t *testing.T, value string, status int, body string) {
		means := answers.Set{}.Judge(status, http.Header{"Retry-After": {value}}, []byte(body),
			time.Unix(2_000_000_000, 0))
		if (means.Means == answers.Done) != (status >= 200 && status < 300) {
			t.Fatalf("status %d is %v", status, means)
		}
		err := failure(status, means, detail(body))
		if strings.ContainsAny(err.Error(), "\r\n") {
			t.Fatalf("%d %q: %q is not one line", status, body, err)
		}
	})
}
