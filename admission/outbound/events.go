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
// within its last event.
func eachEvent(from io.Reader, read func(data []byte)) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, mostRead)
	lines.Split(eventLines())
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

// eventLines splits at LF, CR, and both together.
func eventLines() bufio.SplitFunc {
	afterCR := false
	return func(data []byte, atEOF bool) (advance int, line []byte, err error) {
		if afterCR && len(data) > 0 {
			if afterCR = false; data[0] == '\n' {
				advance = 1
			}
		}
		rest := data[advance:]
		end := bytes.IndexAny(rest, "\r\n")
		switch {
		case end >= 0:
			afterCR = rest[end] == '\r'
			return advance + end + 1, rest[:end], nil
		case atEOF && len(rest) > 0:
			return len(data), rest, nil
		}
		return advance, nil, nil
	}
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
