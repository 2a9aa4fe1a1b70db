package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/trace"
	"github.com/penstock-mq/penstock/queue/job"
)

// Refused lines wait while other buckets continue; no line overtakes an earlier one of its bucket
// that waits.

const (
	batchLines = 1000
	batchBytes = 4 << 20
	// a body of 1 MiB, and room for base64 and escapes
	lineBytes = 3 << 20
	// waiting lines stop the reading
	mostRefused = 10_000
	// without an accepted line
	patience = 5 * time.Minute
	stall    = 5 * time.Second
	told     = 20
)

type totals struct {
	Lines    int   `json:"lines"`
	Accepted int   `json:"accepted"`
	Repeats  int   `json:"repeats"`   // accepted lines that were there before
	NotTaken int   `json:"not_taken"` // refused to the end, or not answered
	Bad      int   `json:"bad"`       // unreadable or invalid
	Failed   int   `json:"failed"`    // outcome unknown, or forbidden
	Refusals int   `json:"refusals"`
	TookMS   int64 `json:"took_ms"`
}

type numbered struct {
	n      int
	bucket string
	text   []byte
}

// gate limits a bucket after a refusal to as many lines as were accepted last time, and doubles the
// limit when all were.
type gate struct {
	until         time.Time
	allow         int
	sent, refused int           // in the current batch
	again         time.Duration // Retry-After of its last refusal
}

const firstAllowed = 8

type loader struct {
	*app
	submission
	header http.Header
	in     *bufio.Reader

	waiting []numbered // refused lines and those queued behind them, in order
	gates   map[string]*gate
	rest    time.Time // pause after an unanswered batch
	ended   bool
	stuck   bool // and said so
	why     int  // status of the last refusal
	total   totals
	last    error

	began, taken time.Time // taken: when a line was last accepted
	meter        *meter
}

func (a *app) submitFile(ctx context.Context, s submission, header http.Header) error {
	in, err := a.open(ctx, s.file)
	if err != nil {
		return usageError{err}
	}
	defer in.Close()
	l := &loader{app: a, submission: s, header: header, began: time.Now(), taken: time.Now(),
		gates: map[string]*gate{}, meter: newMeter(a.err, in, a.json)}
	l.in = bufio.NewReaderSize(l.meter.reading(in), 64<<10)
	err = l.load(ctx)
	l.meter.end()
	l.total.NotTaken = len(l.waiting)
	l.total.TookMS = time.Since(l.began).Milliseconds()
	if printErr := l.summary(); printErr != nil {
		return printErr
	}
	if l.total.NotTaken > 0 || !l.ended {
		fmt.Fprintln(l.err, "penstock: run the same command again to continue")
	}
	switch {
	case err != nil:
		return err
	case l.last != nil:
		return l.last
	case l.total.Bad > 0:
		return said(exitUsage)
	case l.total.NotTaken > 0:
		return said(l.why)
	}
	return nil
}

func (l *loader) load(ctx context.Context) error {
	for {
		batch, err := l.batch()
		if err != nil {
			return err
		}
		if len(batch) > 0 {
			if err := l.send(ctx, batch); err != nil {
				return err
			}
			continue
		}
		if l.ended && len(l.waiting) == 0 {
			return nil
		}
		next := l.next()
		if time.Since(l.taken)+time.Until(next) > l.wait {
			return nil
		}
		if time.Since(l.taken) > stall {
			l.waits(fmt.Sprintf("no line was accepted for %v", stall))
		}
		if !wait(ctx, time.Until(next)) {
			return ctx.Err()
		}
	}
}

func (l *loader) next() time.Time {
	var first time.Time
	for i, one := range l.waiting {
		var until time.Time
		if g := l.gates[one.bucket]; g != nil {
			until = g.until
		}
		if i == 0 || until.Before(first) {
			first = until
		}
	}
	if first.Before(l.rest) {
		return l.rest
	}
	return first
}

// batch collects waiting lines whose time has come, then new ones.
func (l *loader) batch() (batch []numbered, err error) {
	now, size := time.Now(), 0
	if now.Before(l.rest) {
		return nil, nil
	}
	if len(l.waiting) == 0 {
		clear(l.gates)
	}
	full := func() bool { return len(batch) >= batchLines || size >= batchBytes }
	held := map[string]bool{} // buckets with a line left behind
	take := func(one numbered) bool {
		g := l.gates[one.bucket]
		if full() || held[one.bucket] ||
			g != nil && (g.until.After(now) || g.sent >= g.allow) {
			held[one.bucket] = true
			return false
		}
		if g != nil {
			g.sent++
		}
		batch, size = append(batch, one), size+len(one.text)
		return true
	}
	l.waiting = slices.DeleteFunc(l.waiting, take)
	for !l.ended && !full() && len(l.waiting)+len(batch) < mostRefused {
		text, err := trace.ReadLine(l.in, lineBytes)
		_, long := errors.AsType[trace.TooLong](err)
		switch {
		case errors.Is(err, io.EOF):
			l.ended = true
			return batch, nil
		case err != nil && !long:
			return nil, fmt.Errorf("%s: %w", l.file, err)
		}
		if l.total.Lines++; l.total.Lines == 1 {
			text = bytes.TrimPrefix(text, []byte("\ufeff"))
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		one := numbered{n: l.total.Lines}
		if err == nil {
			one.text, one.bucket, err = l.job(one.n, text)
		}
		if err != nil {
			l.bad(one.n, err.Error())
		} else if !take(one) {
			l.waiting = append(l.waiting, one)
		}
	}
	return batch, nil
}

func (l *loader) settle() {
	for bucket, g := range l.gates {
		switch {
		case g.refused > 0 && g.sent > 0:
			g.allow = max(g.sent-g.refused, 1)
		case g.sent > 0:
			g.allow *= 2
		}
		if g.refused > 0 {
			g.until = time.Now().Add(max(g.again, again/10))
		}
		if g.sent, g.refused = 0, 0; g.allow >= batchLines {
			delete(l.gates, bucket)
		}
	}
	slices.SortFunc(l.waiting, func(a, b numbered) int { return a.n - b.n })
}

func (l *loader) bad(n int, why string) {
	l.total.Bad++
	l.name(n, why)
}

func (l *loader) name(n int, why string) {
	switch named := l.total.Bad + l.total.Failed; {
	case named <= told:
		l.meter.say("line %d: %s", n, line(why, 300))
	case named == told+1:
		l.meter.say("further bad or failed lines are only counted")
	}
}

// job adds defaults and an Idempotency-Key, and returns the bucket.
func (l *loader) job(n int, text []byte) (complete []byte, bucket string, err error) {
	var fields map[string]json.RawMessage
	err = json.Unmarshal(text, &fields)
	if _, other := errors.AsType[*json.UnmarshalTypeError](err); other || err == nil &&
		fields == nil {
		return nil, "", errors.New("want a JSON object")
	}
	if err != nil {
		return nil, "", fmt.Errorf("invalid JSON: %w", err)
	}
	headers := map[string]string{}
	for name := range l.header {
		headers[name] = l.header.Get(name)
	}
	if given := fields["headers"]; given != nil {
		var own map[string]string
		if err := json.Unmarshal(given, &own); err != nil {
			return nil, "", errors.New("headers: want an object of strings")
		}
		for name, value := range own {
			headers[http.CanonicalHeaderKey(name)] = value
		}
	}
	if headers[job.HeaderIdempotencyKey] == "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s", l.submission.run, n, text))
		headers[job.HeaderIdempotencyKey] = hex.EncodeToString(sum[:16])
	}
	set := func(name string, value any) {
		if err == nil {
			fields[name], err = json.Marshal(value)
		}
	}
	set("headers", headers)
	if fields["policy"] == nil && l.policy == "" {
		return nil, "", errors.New("policy: missing in the line and on the command line")
	}
	if fields["policy"] == nil {
		set("policy", l.policy)
	}
	if fields["key"] == nil {
		set("key", l.key)
	}
	if err != nil {
		return nil, "", err
	}
	return object(fields), string(fields["policy"]) + string(fields["key"]), nil
}

// Unlike [json.Marshal], object does not reformat values.
func object(fields map[string]json.RawMessage) []byte {
	var b bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		quoted, _ := json.Marshal(name)
		fmt.Fprintf(&b, ",%s:%s", quoted, fields[name])
	}
	return append(append([]byte{'{'}, b.Bytes()[1:]...), '}')
}

// Unanswered lines wait again; their Idempotency-Keys make that safe.
func (l *loader) send(ctx context.Context, batch []numbered) error {
	defer l.settle()
	var body bytes.Buffer
	for _, one := range batch {
		body.Write(one.text)
		body.WriteByte('\n')
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	r, err := l.prepare(ctx, request{method: http.MethodPost, path: "/v1/jobs:batch",
		body: body.Bytes()})
	if err != nil {
		return err
	}
	response, err := l.client.send(r)
	if err != nil {
		return l.unanswered(batch, err)
	}
	defer response.Body.Close()
	verdicts := json.NewDecoder(response.Body)
	for i := range batch {
		var v verdictAnswer
		err := verdicts.Decode(&v)
		if err == nil && v.Status == 0 {
			err = errForeign
		}
		if err != nil {
			return l.unanswered(batch[i:], &noAnswer{l.server, l.timeout, err})
		}
		l.verdict(batch[i], v)
	}
	return nil
}

const again = time.Second

// unanswered returns err if that is permanent, or has lasted too long.
func (l *loader) unanswered(batch []numbered, err error) error {
	l.waiting, l.rest = append(l.waiting, batch...), time.Now().Add(again)
	p, said := errors.AsType[*problem](err)
	passes := !said || statusOf(p.Status) == exitUnavailable || statusOf(p.Status) == exitRefused
	if !passes || errors.Is(err, context.Canceled) || time.Since(l.taken) > l.wait ||
		l.total.Accepted == 0 && !said {
		return err
	}
	l.why = status(err)
	l.waits(err.Error())
	return nil
}

func (l *loader) waits(why string) {
	if !l.stuck {
		l.meter.say("%s: retrying", why)
	}
	l.stuck = true
}

func (l *loader) verdict(one numbered, v verdictAnswer) {
	switch kind := statusOf(v.Status); {
	case v.Status < 300:
		l.total.Accepted++
		if v.Duplicate {
			l.total.Repeats++
		}
		if l.stuck {
			l.meter.say("lines are accepted again")
		}
		l.taken, l.stuck = time.Now(), false
	case kind == exitRefused || kind == exitUnavailable:
		l.total.Refusals++
		l.why = kind
		g := l.gates[one.bucket]
		if g == nil {
			g = &gate{allow: firstAllowed}
			l.gates[one.bucket] = g
		}
		g.refused, g.again = g.refused+1, milliseconds(v.RetryAfterMS)
		l.waiting = append(l.waiting, one)
	case kind == exitUsage:
		l.bad(one.n, v.Detail)
	default:
		l.total.Failed++
		l.name(one.n, (&problem{Rejected: api.Rejected{Problem: api.Problem{Status: v.Status,
			Detail: v.Detail}}}).Error())
		l.last = said(kind)
	}
	l.meter.count(l.total.Accepted, l.total.Refusals, len(l.waiting))
}

func (l *loader) summary() error {
	t := l.total
	if l.json {
		return json.NewEncoder(l.out).Encode(t)
	}
	took := time.Since(l.began)
	fmt.Fprintf(l.out, "%s: %d accepted", count(t.Lines, "line", "lines"), t.Accepted)
	if t.Repeats > 0 {
		fmt.Fprintf(l.out, " (%d of them earlier)", t.Repeats)
	}
	for _, part := range []struct {
		n    int
		what string
	}{{t.NotTaken, "not taken"}, {t.Bad, "bad"}, {t.Failed, "failed"}} {
		if part.n > 0 {
			fmt.Fprintf(l.out, ", %d %s", part.n, part.what)
		}
	}
	return l.printf(", in %s (%.0f/s)\n", short(took), float64(t.Accepted)/took.Seconds())
}
