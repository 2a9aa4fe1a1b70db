package outbound_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/admission/outbound"
)

// The streams are valid by https://html.spec.whatwg.org/multipage/server-sent-events.html, though
// rare.
func TestUsageIsSettledByAnyEventStream(t *testing.T) {
	const usage = `{"usage":{"total_tokens":100}}`
	const gemini = `{"candidates":[{"index":0}],"usageMetadata":{"promptTokenCount":8,` +
		`"candidatesTokenCount":%d,"totalTokenCount":%d}}`
	first := fmt.Sprintf(gemini, 1, 9)
	last := fmt.Sprintf(gemini, 92, 100)
	for name, c := range map[string]struct{ kind, body string }{
		"several lines of data": {"",
			"data: {\"usage\":\ndata: {\"total_tokens\":\ndata:100}}\n\n"},
		"data between other fields": {"",
			"id: 1\ndata: {\"usage\":\nretry: 5\n: a comment\ndata:{\"total_tokens\":100}}\n\n"},
		"CR LF":                 {"", "data: {\"usage\":\r\ndata: {\"total_tokens\":100}}\r\n\r\n"},
		"mixed ends":            {"", "data: {}\r\n\ndata: " + usage + "\n\r\n"},
		"a BOM":                 {"", "\ufeffdata: " + usage + "\n\n"},
		"no blank line":         {"", "data: " + usage},
		"an empty line of data": {"", "data\ndata: " + usage + "\ndata\n\n"},
		"another spelling of the type": {"Text/Event-Stream ;charset=utf-8",
			"data: " + usage + "\n\n"},
		"a number with a fraction": {"", "data: {\"usage\":{\"total_tokens\":100.0}}\n\n"},
		"an exponent":              {"", "data: {\"usage\":{\"total_tokens\":1e2}}\n\n"},
		"fractions in a sum": {"", "data: {\"usage\":{\"input_tokens\":40.0,\"x\":0.5}}\n\n" +
			"data: {\"usage\":{\"output_tokens\":59.5}}\n\n"},
		"Gemini":           {"", "data: " + first + "\r\n\r\ndata: " + last + "\r\n\r\n"},
		"Gemini, indented": {"", "data: " + strings.ReplaceAll(last, ",", ",\ndata: ") + "\n\n"},
		"Gemini, without a total": {"", "data: {\"usageMetadata\":{\"promptTokenCount\":60," +
			"\"candidatesTokenCount\":10,\"thoughtsTokenCount\":25," +
			"\"toolUsePromptTokenCount\":5,\"cachedContentTokenCount\":50}}\n\n"},
		"Gemini, an array":   {"application/json", "[" + first + "\n,\n" + last + "]"},
		"Gemini, one answer": {"application/json; charset=UTF-8", last},
		"JSON with a BOM":    {"application/json", "\ufeff" + usage},
	} {
		t.Run(name, func(t *testing.T) {
			w := begin(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.kind == "" {
					c.kind = "text/event-stream"
				}
				w.Header().Set("Content-Type", c.kind)
				for _, b := range []byte(c.body) { // lines end where reads do
					_, _ = w.Write([]byte{b})
				}
			}, outbound.Options{}, outbound.Route{Tokens: "tokens"})
			if got := text(t, w.ask("POST", "/", "{}")); got != c.body {
				t.Errorf("the caller got %q", got)
			}
			if r := w.end(1); r.Used["tokens"] != 100 {
				t.Errorf("settled %+v", r)
			}
		})
	}
}
