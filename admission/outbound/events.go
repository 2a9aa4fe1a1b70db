package outbound

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
)

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
