// Package trace reads recorded requests: CSV, NDJSON, access logs, and Penstock's events.
// Unreadable lines are counted and skipped.
package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers/whatif"
)

// The formats, beside those of access logs. Auto looks at the first line.
const (
	Auto   = "auto"
	CSV    = "csv"
	NDJSON = "ndjson" // also the events of penstock tail --json
	Log    = "log"    // common or combined, perhaps with the virtual host in front
)

// Formats are the names of all formats.
var Formats = formats()

func formats() []string {
	names := []string{Auto, CSV, NDJSON}
	for _, a := range accesses {
		names = append(names, a.name)
	}
	return names
}

// Options tell how to read a trace.
type Options struct {
	Format string // default Auto
	// column or field, default "key"; for a log "ip" (default), "path", "user" or "host". In
	// objects of JSON a dot leads into an inner one.
	Key string
	// Keyless: the requests have no key on purpose.
	Keyless bool
	// column or field
	Time string
}

// Trace holds requests in order of time.
type Trace struct {
	Format   string
	Requests []Request
	Lines    int
	Skipped  int
	Problems []Problem
	// Keyless is the number of requests that have no key, though others have one.
	Keyless int
}

// Request is a request of a trace; Policy may be empty.
type Request struct {
	whatif.Request
	Policy string
}

// Problem is a line that could not be read.
type Problem struct {
	Line   int    `json:"line"`
	Reason string `json:"reason"`
	Text   string `json:"text"` // its beginning
}

const (
	mostProblems = 5
	mostText     = 60      // bytes shown of a line
	mostLine     = 1 << 20 // bytes of a line
	mostCost     = 1e12
)

// Rules accept instants from 1970 to 2255.
var latest = time.Date(2255, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()

// line is valid until the next one is read.
type line struct {
	Request
	at    time.Time
	key   string
	keyed bool
	aside bool // not a request: a header line or another event
	// others returns the names of fields that have no meaning here.
	others func() []string
}

type reader func(text []byte, number int) (line, error)

// Read reads a trace; lines that it cannot read are skipped and counted.
func Read(in io.Reader, o Options) (*Trace, error) {
	t, keys := &Trace{Format: o.Format}, map[string]queue.Key{}
	var of reader
	var others []string
	buffered := bufio.NewReaderSize(in, 1<<16)
	for number := 1; ; number++ {
		text, err := cli.ReadLine(buffered, mostLine)
		if errors.Is(err, io.EOF) {
			break
		}
		if _, long := errors.AsType[cli.TooLong](err); err != nil && !long {
			return nil, err
		}
		if number == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			continue
		}
		t.Lines++
		if of == nil {
			if t.Format == "" || t.Format == Auto {
				t.Format = guess(text)
			}
			if of = readerOf(t.Format, o); of == nil {
				return nil, fmt.Errorf("format %q: want one of %v", t.Format, Formats)
			}
		}
		var l line
		if err == nil {
			l, err = of(text, t.Lines)
		}
		var r Request
		if err == nil && !l.aside {
			r, err = request(&l, keys)
		}
		switch {
		case err != nil:
			t.leaveOut(number, text, err)
		case !l.aside:
			t.Requests = append(t.Requests, r)
			if l.keyed {
				break
			}
			if t.Keyless++; l.others != nil && others == nil {
				others = l.others()
			}
		}
	}
	if err := t.checkKeys(o, others); err != nil {
		return nil, err
	}
	byTime := func(a, b Request) int { return cmp.Compare(a.At, b.At) }
	if !slices.IsSortedFunc(t.Requests, byTime) {
		slices.SortStableFunc(t.Requests, byTime)
	}
	if accessNamed(t.Format) != nil {
		spread(t.Requests)
	}
	return t, nil
}

// checkKeys refuses a trace without keys that probably has them in another field: all requests
// would share a bucket.
func (t *Trace) checkKeys(o Options, others []string) error {
	switch {
	case t.Keyless < len(t.Requests):
		return nil
	case t.Keyless == 0, o.Keyless, o.Key == "" && others == nil && accessNamed(t.Format) == nil:
		t.Keyless = 0
		return nil
	}
	hint := "with --key '' they share a bucket"
	if len(others) > 0 {
		slices.Sort(others)
		hint = fmt.Sprintf("with --key it may be one of %s; %s",
			strings.Join(others[:min(len(others), 12)], ", "), hint)
	}
	return fmt.Errorf("no line has the key %s: %s", cmp.Or(o.Key, "key"), hint)
}

func readerOf(format string, o Options) reader {
	switch a := accessNamed(format); {
	case a != nil:
		return a.reader(o)
	case format == CSV:
		return (&csvReader{Options: o}).line
	case format == NDJSON:
		return o.json
	}
	return nil
}

func guess(text []byte) string {
	for i := range accesses {
		if accesses[i].recognizes(text) {
			return accesses[i].name
		}
	}
	if text[0] == '{' {
		return NDJSON
	}
	return CSV
}

func (t *Trace) leaveOut(number int, text []byte, why error) {
	if t.Skipped++; len(t.Problems) < mostProblems {
		shown := strings.ToValidUTF8(string(text[:min(len(text), mostText)]), "\ufffd")
		t.Problems = append(t.Problems, Problem{number, why.Error(), shown})
	}
}

func request(l *line, keys map[string]queue.Key) (r Request, err error) {
	ns := l.at.UnixNano()
	if year := l.at.Year(); year < 1970 || year > 2255 || ns < 0 || ns > latest {
		return r, fmt.Errorf("time %v: want one of the years 1970 to 2254",
			l.at.Format(time.RFC3339))
	}
	if l.Cost < 1 || l.Cost > mostCost {
		return r, fmt.Errorf("cost %d: want 1 to %d", l.Cost, int64(mostCost))
	}
	if l.Deadline < 0 {
		return r, fmt.Errorf("deadline %v: want no less than none", l.Deadline)
	}
	if l.Duration < 0 {
		return r, fmt.Errorf("duration %v: want no less than none", l.Duration)
	}
	key, known := keys[l.key]
	if !known {
		if key, err = queue.EncodeKey(l.key); err != nil {
			return r, fmt.Errorf("key: %w", err)
		}
		keys[strings.Clone(l.key)] = key
	}
	r = l.Request
	r.At, r.Key, r.IP, r.Policy = ns, key, strings.Clone(r.IP), strings.Clone(r.Policy)
	return r, nil
}

// Many logs have whole seconds: without spreading, each would begin with a burst.
func spread(all []Request) {
	for _, r := range all {
		if r.At%int64(time.Second) != 0 {
			return
		}
	}
	for i := 0; i < len(all); {
		n := 1
		for i+n < len(all) && all[i+n].At == all[i].At {
			n++
		}
		for j := range n {
			all[i+j].At += int64(j) * int64(time.Second) / int64(n)
		}
		i += n
	}
}

// instant parses a date, or s, ms, µs or ns since 1970 by the number of digits.
func instant(text string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02 15:04:05.999999999",
		"2006-01-02T15:04:05.999999999", "02/Jan/2006:15:04:05 -0700", "02/Jan/2006:15:04:05.999"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	whole, part, _ := strings.Cut(text, ".")
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || len(part) > 9 || strings.Trim(part, "0123456789") != "" {
		return time.Time{}, fmt.Errorf("time %q: want one such as 2026-11-23T14:32:07.113Z, or "+
			"seconds since 1970", text)
	}
	unit := int64(time.Second)
	for _, most := range []int64{1e11, 1e14, 1e17} {
		if n >= most {
			unit /= 1000
		}
	}
	fraction, _ := strconv.ParseInt((part + "000000000")[:9], 10, 64)
	return time.Unix(n/(int64(time.Second)/unit),
		n%(int64(time.Second)/unit)*unit+fraction*unit/int64(time.Second)), nil
}
