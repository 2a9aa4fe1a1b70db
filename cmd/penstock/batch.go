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
	"net/http"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

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
	again    = time.Second
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

// numbered is a line of the file, which is not sent before due.
type numbered struct {
	n      int
	bucket string
	text   []byte
	due    time.Time
}

// loader submits a file. Each refused line waits for as long as its refusal says, and those of its
// bucket behind it wait with it; other buckets continue.
type loader struct {
	*app
	submission
	header http.Header
	in     *bufio.Reader
	ended  bool // the file

	waiting []numbered // in order
	rest    time.Time  // end of the pause after an unanswered batch
	taken   time.Time  // when a line was last accepted
	stuck   bool       // and said so
	total   totals
	last    error // the last failure
	refused error // the last refusal
}

func (a *app) submitFile(ctx context.Context, s submission, header http.Header) error {
	in, err := a.Open(ctx, s.file)
	if err != nil {
		return cli.Misuse(err)
	}
	defer in.Close()
	began := time.Now()
	l := &loader{app: a, submission: s, header: header, taken: began,
		in: bufio.NewReaderSize(in, 64<<10)}
	err = l.load(ctx)
	l.total.NotTaken = len(l.waiting)
	l.total.TookMS = time.Since(began).Milliseconds()
	if printErr := l.summary(); printErr != nil {
		return printErr
	}
	if l.total.NotTaken > 0 || !l.ended {
		l.say("run the same command again to continue")
	}
	switch {
	case err != nil:
		return err
	case l.last != nil:
		return l.last
	case l.total.Bad > 0:
		return cli.Said(cli.Usage)
	case l.total.NotTaken > 0:
		return l.refused
	}
	return nil
}

func (l *loader) load(ctx context.Context) error {
	for {
		batch, next, err := l.batch()
		if err != nil {
			return err
		}
		if len(batch) > 0 {
			if err := l.send(ctx, batch); err != nil {
				return err
			}
			continue
		}
		if l.ended && len(l.waiting) == 0 || time.Since(l.taken)+time.Until(next) > l.wait {
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

// batch collects waiting lines whose time has come, then new ones, or tells when some will be due.
func (l *loader) batch() (batch []numbered, next time.Time, err error) {
	now, size := time.Now(), 0
	if now.Before(l.rest) {
		return nil, l.rest, nil
	}
	full := func() bool { return len(batch) >= batchLines || size >= batchBytes }
	held := map[string]bool{} // buckets with a line left behind
	take := func(one numbered) {
		if !full() && !held[one.bucket] && !one.due.After(now) {
			batch, size = append(batch, one), size+len(one.text)
			return
		}
		if !held[one.bucket] && (next.IsZero() || one.due.Before(next)) {
			next = one.due
		}
		held[one.bucket] = true
		l.waiting = append(l.waiting, one)
	}
	before := l.waiting
	l.waiting = nil
	for _, one := range before {
		take(one)
	}
	for !l.ended && !full() && len(l.waiting)+len(batch) < mostRefused {
		one, err := l.read()
		if err != nil {
			return nil, next, fmt.Errorf("%s: %w", l.file, err)
		}
		if one.text != nil {
			take(one)
		}
	}
	return batch, next, nil
}

// read returns the next line, without a text if there is none to send.
func (l *loader) read() (one numbered, err error) {
	text, err := cli.ReadLine(l.in, lineBytes)
	_, long := errors.AsType[cli.TooLong](err)
	if l.ended = errors.Is(err, io.EOF); l.ended {
		return one, nil
	} else if err != nil && !long {
		return one, err
	}
	if l.total.Lines++; l.total.Lines == 1 {
		text = bytes.TrimPrefix(text, []byte("\ufeff"))
	}
	one.n = l.total.Lines
	if text = bytes.TrimSpace(text); len(text) == 0 {
		return one, nil
	}
	if err == nil {
		one.text, one.bucket, err = l.job(one.n, text)
	}
	if err != nil {
		l.bad(one.n, err.Error())
	}
	return one, nil
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
	var own map[string]string
	if given := fields["headers"]; given != nil && json.Unmarshal(given, &own) != nil {
		return nil, "", errors.New("headers: want an object of strings")
	}
	for name, value := range own {
		headers[http.CanonicalHeaderKey(name)] = value
	}
	if headers[idempotencyKey] == "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%s", l.submission.run, n, text))
		headers[idempotencyKey] = hex.EncodeToString(sum[:16])
	}
	delete(fields, "headers")
	for name, value := range map[string]any{"headers": headers, "policy": l.policy, "key": l.key} {
		if fields[name] != nil {
			continue
		}
		if value == "" && name == "policy" {
			return nil, "", errors.New("policy: missing in the line and on the command line")
		}
		if fields[name], err = json.Marshal(value); err != nil {
			return nil, "", err
		}
	}
	// Not json.Marshal, which reformats bodies.
	for name, value := range fields {
		quoted, _ := json.Marshal(name)
		complete = fmt.Appendf(complete, ",%s:%s", quoted, value)
	}
	complete[0] = '{'
	return append(complete, '}'), string(fields["policy"]) + string(fields["key"]), nil
}

// Unanswered lines wait again; their Idempotency-Keys make that safe.
func (l *loader) send(ctx context.Context, batch []numbered) error {
	var body []byte
	for _, one := range batch {
		body = append(append(body, one.text...), '\n')
	}
	behind := l.waiting
	l.waiting = nil
	defer func() { l.waiting = append(l.waiting, behind...) }()
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	response, err := l.client.send(ctx, request{method: http.MethodPost, path: "/v1/jobs:batch",
		body: body})
	if err != nil {
		return l.unanswered(batch, err)
	}
	defer response.Body.Close()
	verdicts := json.NewDecoder(response.Body)
	for i, one := range batch {
		var v api.BatchLine
		err := verdicts.Decode(&v)
		if err == nil && v.Status == 0 {
			err = errForeign
		}
		if err != nil {
			return l.unanswered(batch[i:], &noAnswer{l.server, l.timeout, err})
		}
		l.verdict(one, v)
	}
	return nil
}

// unanswered returns err if that is permanent, or has lasted too long.
func (l *loader) unanswered(batch []numbered, err error) error {
	l.waiting, l.rest, l.refused = append(l.waiting, batch...), time.Now().Add(again),
		cli.Said(cli.Status(err))
	_, answered := errors.AsType[*problem](err)
	if answered && !is(err, cli.Unavailable, cli.Refused) || errors.Is(err, context.Canceled) ||
		time.Since(l.taken) > l.wait || l.total.Accepted == 0 && !answered {
		return err
	}
	l.waits(err.Error())
	return nil
}

func (l *loader) verdict(one numbered, v api.BatchLine) {
	switch kind := statusOf(v.Status); {
	case v.Status < 300:
		l.total.Accepted++
		if v.Duplicate {
			l.total.Repeats++
		}
		if l.stuck {
			l.say("lines are accepted again")
		}
		l.taken, l.stuck = time.Now(), false
	case kind == cli.Refused || kind == cli.Unavailable:
		l.total.Refusals++
		l.refused = cli.Said(kind)
		one.due = time.Now().Add(max(milliseconds(v.RetryAfterMS), again/10))
		l.waiting = append(l.waiting, one)
	case kind == cli.Usage:
		l.bad(one.n, v.Detail)
	default:
		l.total.Failed++
		l.last = cli.Said(kind)
		l.name(one.n, (&problem{Rejected: api.Rejected{Problem: api.Problem{Status: v.Status,
			Detail: v.Detail}}}).Error())
	}
}

func (l *loader) waits(why string) {
	if !l.stuck {
		l.say("%s: retrying", why)
	}
	l.stuck = true
}

func (l *loader) bad(n int, why string) {
	l.total.Bad++
	l.name(n, why)
}

func (l *loader) name(n int, why string) {
	switch named := l.total.Bad + l.total.Failed; {
	case named <= told:
		l.say("line %d: %s", n, cli.Line(why, 300))
	case named == told+1:
		l.say("further bad or failed lines are only counted")
	}
}

func (l *loader) say(format string, args ...any) {
	fmt.Fprintf(l.Err, "penstock: "+format+"\n", args...)
}

func (l *loader) summary() error {
	t := l.total
	text := fmt.Sprintf("%s: %d accepted", cli.Count(t.Lines, "line", "lines"), t.Accepted)
	if t.Repeats > 0 {
		text += fmt.Sprintf(" (%d of them earlier)", t.Repeats)
	}
	for _, part := range []struct {
		n    int
		what string
	}{{t.NotTaken, "not taken"}, {t.Bad, "bad"}, {t.Failed, "failed"}} {
		if part.n > 0 {
			text += fmt.Sprintf(", %d %s", part.n, part.what)
		}
	}
	took := milliseconds(t.TookMS)
	return l.Document(t, "%s, in %s (%.0f/s)\n", text, cli.Short(took),
		float64(t.Accepted)/max(took.Seconds(), 0.001))
}
