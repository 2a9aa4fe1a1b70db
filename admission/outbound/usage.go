package outbound

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// mostRead bounds a JSON answer, or an event of a stream, in which the usage is looked for.
const mostRead = 8 << 20

// estimate returns the tokens that a request may use: a quarter of its bytes, and the most that it
// permits in the answer.
func estimate(body []byte, length int64) int64 {
	var most struct {
		Tokens     float64 `json:"max_tokens"`
		Completion float64 `json:"max_completion_tokens"` // OpenAI, chat completions
		Output     float64 `json:"max_output_tokens"`     // OpenAI, responses
	}
	_ = json.Unmarshal(body, &most) // what it has none of counts nothing
	answer := max(0, most.Tokens, most.Completion, most.Output)
	return max(1, (max(length, int64(len(body)))+3)/4+int64(min(answer, math.MaxInt32)))
}

// includeUsage lets a stream of OpenAI's chat completions end with its usage.
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

// usage is what OpenAI's and Anthropic's APIs say of used tokens.
type usage struct {
	Total         int64 `json:"total_tokens"`
	Prompt        int64 `json:"prompt_tokens"`
	Completion    int64 `json:"completion_tokens"`
	Input         int64 `json:"input_tokens"`
	Output        int64 `json:"output_tokens"`
	CacheCreation int64 `json:"cache_creation_input_tokens"`
}

// tokens returns the sum; 0: unknown.
func (u usage) tokens() int64 {
	if u.Total > 0 {
		return u.Total
	}
	return u.Prompt + u.Completion + u.Input + u.Output + u.CacheCreation
}

// read takes the usage from a document: an answer, or an event of a stream. Later events replace
// the numbers that they repeat.
func (u *usage) read(document []byte) {
	type holder struct {
		Usage *usage `json:"usage"`
	}
	_ = json.Unmarshal(document, &struct { // other types have no usage
		Usage    *usage `json:"usage"`
		Message  holder `json:"message"`  // Anthropic: message_start
		Response holder `json:"response"` // OpenAI: response.completed
	}{u, holder{u}, holder{u}})
}

// meter reads the usage from a copy of an answer's body.
type meter struct {
	copy *io.PipeWriter
	done chan struct{}
	used int64 // when done
}

func newMeter(header http.Header) *meter {
	from, to := io.Pipe()
	m := &meter{copy: to, done: make(chan struct{})}
	coding := header.Get("Content-Encoding")
	events := strings.HasPrefix(header.Get("Content-Type"), "text/event-stream")
	go func() {
		defer close(m.done)
		if body, err := decoded(from, coding); err == nil {
			m.used = find(body, events)
		}
		_, _ = io.Copy(io.Discard, from) // the writer waits for it
	}()
	return m
}

// end returns the used tokens; 0: unknown, as in a body that was cut off.
func (m *meter) end(whole bool) int64 {
	if whole {
		_ = m.copy.Close() // never fails
	} else {
		_ = m.copy.CloseWithError(io.ErrUnexpectedEOF)
	}
	if <-m.done; !whole {
		return 0
	}
	return m.used
}

// decoded removes the content coding of a body.
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

// find returns the tokens that a body names.
func find(body io.Reader, events bool) int64 {
	var u usage
	if !events {
		text, _ := io.ReadAll(io.LimitReader(body, mostRead)) // of a part nothing is read
		u.read(text)
		return u.tokens()
	}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, mostRead)
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if ok && bytes.Contains(data, []byte(`"usage"`)) {
			u.read(data)
		}
	}
	return u.tokens()
}
