package outbound

import (
	"bytes"
	"io"
	"net/http"
	"testing"
)

func FuzzMeter(f *testing.F) {
	for _, coding := range []string{"", "gzip", "deflate", "br", "zstd"} {
		f.Add(200, coding, "application/json", []byte(`{"usage":{"total_tokens":9}}`))
		f.Add(200, coding, "text/event-stream", []byte("data: {\"usage\":{}}\n\n\x1f\x8b\x08"))
	}
	f.Add(101, "", "", []byte("\x81\x05{\"a\"}\xc1\x02\x01\x00"))
	f.Fuzz(func(_ *testing.T, status int, coding, kind string, body []byte) {
		m := newMeter(Route{Tokens: "tokens"}, &http.Response{StatusCode: status,
			Header: http.Header{"Content-Encoding": {coding}, "Content-Type": {kind},
				"Sec-Websocket-Extensions": {"permessage-deflate"}},
			Body: io.NopCloser(bytes.NewReader(body))})
		_, _ = io.Copy(io.Discard, m)
		m.end()
		estimate(includeUsage(body))
	})
}
