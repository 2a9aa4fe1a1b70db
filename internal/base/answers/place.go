package answers

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
)

// answer has parts that rules share.
type answer struct {
	header http.Header
	body   []byte
	parsed bool
	json   any // nil: the body is not JSON
}

// values yields the texts at a place.
func (a *answer) values(p Place) iter.Seq[string] {
	return func(yield func(string) bool) {
		switch {
		case p.Body:
			yield(strings.TrimSpace(string(a.body)))
		case p.Header != "":
			for _, value := range a.header.Values(p.Header) {
				if p.JSON == "" {
					if !yield(strings.TrimSpace(value)) {
						return
					}
				} else if !walk(parse([]byte(value)), strings.Split(p.JSON, "."), yield) {
					return
				}
			}
		case p.JSON != "":
			if !a.parsed {
				a.json, a.parsed = parse(a.body), true
			}
			walk(a.json, strings.Split(p.JSON, "."), yield)
		}
	}
}

func parse(text []byte) (document any) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&document) != nil {
		return nil
	}
	if _, err := d.Token(); err != io.EOF { // a part, or a stream of documents
		return nil
	}
	return document
}

// walk yields the texts, numbers and truth values at a path, and reports whether to go on.
func walk(at any, path []string, yield func(string) bool) bool {
	if len(path) > 0 && path[0] == "**" {
		if !walk(at, path[1:], yield) {
			return false
		}
		for member := range members(at) {
			if !walk(member, path, yield) {
				return false
			}
		}
		return true
	}
	if len(path) == 0 {
		switch v := at.(type) {
		case string:
			return yield(v)
		case json.Number:
			return yield(v.String())
		case bool:
			return yield(strconv.FormatBool(v))
		}
		return true
	}
	if path[0] == "*" {
		for member := range members(at) {
			if !walk(member, path[1:], yield) {
				return false
			}
		}
		return true
	}
	switch v := at.(type) {
	case map[string]any:
		return walk(v[path[0]], path[1:], yield)
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < len(v) {
			return walk(v[i], path[1:], yield)
		}
	}
	return true
}

func members(of any) iter.Seq[any] {
	return func(yield func(any) bool) {
		switch v := of.(type) {
		case map[string]any:
			for _, member := range v {
				if !yield(member) {
					return
				}
			}
		case []any:
			for _, member := range v {
				if !yield(member) {
					return
				}
			}
		}
	}
}

// like reports whether a text in lower case matches a pattern, whose * is any text.
func like(text, pattern string) bool {
	parts := strings.Split(strings.ToLower(pattern), "*")
	last := len(parts) - 1
	if last == 0 {
		return text == parts[0]
	}
	text, begins := strings.CutPrefix(text, parts[0])
	if !begins || !strings.HasSuffix(text, parts[last]) {
		return false
	}
	text = text[:len(text)-len(parts[last])]
	for _, part := range parts[1:last] {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return true
}
