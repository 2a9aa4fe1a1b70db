package outbound

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/policy"
)

// mostRead bounds the JSON answers and events that are searched for usage.
const mostRead = 8 << 20

const (
	leastImage    = 512 // characters of base64
	tokensOfImage = 1000
)

// estimate returns the tokens that a request may use: its images, a quarter of its other bytes, and
// the most that it permits in the answer.
func estimate(body []byte) int64 {
	tokens, text, run := int64(0), len(body), 0
	for i := range len(body) + 1 {
		if i < len(body) && base64[body[i]] {
			run++
			continue
		}
		if run >= leastImage {
			text, tokens = text-run, tokens+tokensOfImage
		}
		run = 0
	}
	var most struct {
		Tokens     float64 `json:"max_tokens"`
		Completion float64 `json:"max_completion_tokens"`
		Output     float64 `json:"max_output_tokens"`
		Gemini     struct {
			Output float64 `json:"maxOutputTokens"`
		} `json:"generationConfig"`
	}
	_ = json.Unmarshal(body, &most)
	answer := max(0, most.Tokens, most.Completion, most.Output, most.Gemini.Output)
	return max(1, tokens+int64(text+3)/4+int64(min(answer, math.MaxInt32)))
}

// both alphabets of RFC 4648
var base64 = func() (is [256]bool) {
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_" {
		is[c] = true
	}
	return is
}()

// includeUsage makes a stream of OpenAI's chat completions end with its usage.
func includeUsage(body []byte) []byte {
	var request struct {
		Stream  bool            `json:"stream"`
		Options json.RawMessage `json:"stream_options"`
	}
	open := bytes.IndexByte(body, '{')
	err := json.Unmarshal(body, &request)
	if err != nil || !request.Stream || request.Options != nil || open < 0 {
		return body
	}
	return bytes.Join([][]byte{body[:open+1], body[open+1:]},
		[]byte(`"stream_options":{"include_usage":true},`))
}

// usage has the fields of OpenAI's, Anthropic's and Gemini's APIs. JSON has no integers: 100.0 is
// one, too.
type usage struct {
	Total         float64 `json:"total_tokens"`
	Prompt        float64 `json:"prompt_tokens"`
	Completion    float64 `json:"completion_tokens"`
	Input         float64 `json:"input_tokens"`
	Output        float64 `json:"output_tokens"`
	CacheCreation float64 `json:"cache_creation_input_tokens"`

	GeminiTotal float64 `json:"totalTokenCount"`
	GeminiInput float64 `json:"promptTokenCount"` // with cached ones
	GeminiTools float64 `json:"toolUsePromptTokenCount"`
	Candidates  float64 `json:"candidatesTokenCount"`
	Thoughts    float64 `json:"thoughtsTokenCount"`
}

// 0: unknown
func (u usage) tokens() int64 {
	n := max(u.Total, u.GeminiTotal)
	if n <= 0 {
		n = u.Prompt + u.Completion + u.Input + u.Output + u.CacheCreation +
			u.GeminiInput + u.GeminiTools + u.Candidates + u.Thoughts
	}
	return int64(math.Ceil(max(0, min(n, policy.MaxLimit))))
}

// read reads an answer, or an event of a stream, whose numbers replace earlier ones.
func (u *usage) read(document []byte) {
	type holder struct {
		Usage    *usage `json:"usage"`
		Metadata *usage `json:"usageMetadata"` // Gemini
	}
	at := holder{u, u}
	_ = json.Unmarshal(document, &struct {
		holder
		Message  holder `json:"message"`  // Anthropic: message_start
		Response holder `json:"response"` // OpenAI: response.completed
	}{at, at, at})
}

// meter is an answer's body, of which it reads a copy.
type meter struct {
	io.ReadCloser
	copy   *io.PipeWriter
	done   chan struct{}
	whole  atomic.Bool
	tokens string
	from   policy.CostFromResponse
	found  map[string]int64
}

func newMeter(r Route, a *http.Response) *meter {
	from, to := io.Pipe()
	m := &meter{ReadCloser: a.Body, copy: to, done: make(chan struct{}), tokens: r.Tokens,
		from: r.CostFromResponse, found: map[string]int64{}}
	m.whole.Store(a.StatusCode == http.StatusSwitchingProtocols) // messages are complete
	status, header := a.StatusCode, a.Header.Clone()             // the original changes
	go func() {
		defer close(m.done)
		m.read(from, status, header)
		_, _ = io.Copy(io.Discard, from)
	}()
	return m
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.ReadCloser.Read(p)
	_, _ = m.copy.Write(p[:n])
	if err == io.EOF {
		m.whole.Store(true)
	}
	return n, err
}

// Write is for upgraded connections.
func (m *meter) Write(p []byte) (int, error) { return m.ReadCloser.(io.Writer).Write(p) }

func (m *meter) read(from io.Reader, status int, header http.Header) {
	if status == http.StatusSwitchingProtocols {
		deflated := strings.Contains(header.Get("Sec-Websocket-Extensions"), "permessage-deflate")
		_ = eachMessage(from, deflated, func(text []byte) {
			sum := maps.Clone(m.found)
			clear(m.found)
			m.document(&usage{}, text)
			for cost, n := range sum {
				m.found[cost] += n
			}
		})
		return
	}
	body, err := decoded(from, header.Get("Content-Encoding"))
	if err != nil {
		return
	}
	var u usage
	read := func(text []byte) { m.document(&u, text) }
	kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
	if strings.EqualFold(strings.TrimSpace(kind), "text/event-stream") {
		_ = eachEvent(body, read)
		return
	}
	text, _ := io.ReadAll(io.LimitReader(body, mostRead)) // a part is no JSON
	eachDocument(text, read)
}

func (m *meter) document(u *usage, text []byte) {
	if m.tokens != "" && bytes.Contains(text, []byte(`"usage`)) {
		if u.read(text); u.tokens() > 0 {
			m.found[m.tokens] = u.tokens()
		}
	}
	for cost, at := range m.from {
		if n, ok := job.UsedAt(at, nil, text); ok && at.JSON != "" {
			m.found[cost] = n
		}
	}
}

// end returns the costs of an answer that was read to its end.
func (m *meter) end() map[string]int64 {
	whole := m.whole.Load()
	if whole {
		_ = m.copy.Close()
	} else {
		_ = m.copy.CloseWithError(io.ErrUnexpectedEOF)
	}
	if <-m.done; !whole {
		return nil
	}
	return m.found
}

func decoded(body io.Reader, coding string) (io.Reader, error) {
	switch strings.ToLower(strings.TrimSpace(coding)) {
	case "gzip", "x-gzip":
		return gzip.NewReader(body)
	case "deflate":
		return zlib.NewReader(body)
	case "br":
		return brotli.NewReader(body), nil
	case "zstd":
		return zstd.NewReader(body, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderMaxMemory(mostRead))
	}
	return body, nil
}

// eachMessage reads the messages of a WebSocket's server (RFC 6455 and RFC 7692).
func eachMessage(from io.Reader, deflated bool, read func(text []byte)) error {
	in := bufio.NewReader(from)
	var message, window []byte
	packed := false
	for {
		var head [10]byte
		if _, err := io.ReadFull(in, head[:2]); err != nil {
			return err
		}
		length, more := uint64(head[1]&0x7F), 0
		switch length {
		case 126:
			more = 2
		case 127:
			more = 8
		}
		if _, err := io.ReadFull(in, head[2:2+more]); err != nil {
			return err
		}
		if more > 0 {
			length = 0
			for _, b := range head[2 : 2+more] {
				length = length<<8 | uint64(b)
			}
		}
		control := head[0]&0x08 != 0
		if length > mostRead || !control && uint64(len(message))+length > mostRead {
			return bufio.ErrTooLong
		}
		if control {
			if _, err := in.Discard(int(length)); err != nil {
				return err
			}
			continue
		}
		if len(message) == 0 {
			packed = deflated && head[0]&0x40 != 0
		}
		start := len(message)
		message = append(message, make([]byte, length)...)
		if _, err := io.ReadFull(in, message[start:]); err != nil {
			return err
		}
		if head[0]&0x80 == 0 {
			continue
		}
		text := message
		if packed { // append the end that senders omit, and a final block
			tail := []byte{0, 0, 0xFF, 0xFF, 1, 0, 0, 0xFF, 0xFF}
			var err error
			if text, err = io.ReadAll(io.LimitReader(flate.NewReaderDict(
				bytes.NewReader(append(message, tail...)), window), mostRead)); err != nil {
				return err
			}
			window = append(window, text...)
			window = bytes.Clone(window[max(0, len(window)-32<<10):])
		}
		read(text)
		message = message[:0]
	}
}

var bom = []byte("\ufeff")

// eachEvent reads the data of server-sent events, by the algorithm of the standard
// (https://html.spec.whatwg.org/multipage/server-sent-events.html), except that a stream may end
// within its last event, and that lines end at LF or CRLF, not at CR alone.
func eachEvent(from io.Reader, read func(data []byte)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, mostRead)
	var data []byte
	dispatch := func() {
		if len(data) > 0 {
			read(data)
		}
		data = data[:0]
	}
	for first := true; lines.Scan(); first = false {
		line := lines.Bytes()
		if first {
			line = bytes.TrimPrefix(line, bom)
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case len(line) == 0:
			dispatch()
		case string(field) == "data":
			if len(data)+len(value) > mostRead {
				return bufio.ErrTooLong
			}
			data = append(append(data, bytes.TrimPrefix(value, []byte(" "))...), '\n')
		}
	}
	dispatch()
	return lines.Err()
}

// eachDocument reads a JSON document, or the elements of an array, as Gemini streams them.
func eachDocument(text []byte, read func(document []byte)) {
	text = bytes.TrimPrefix(text, bom)
	var all []json.RawMessage
	if json.Unmarshal(text, &all) != nil {
		all = []json.RawMessage{text}
	}
	for _, document := range all {
		read(document)
	}
}
