package httpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/admission/watch"
	"github.com/penstock-mq/penstock/queue"
)

const (
	aliveEvery = 15 * time.Second
	// then the client reconnects
	streamFor = 15 * time.Minute
)

func (m management) stats(ctx context.Context, at place) (any, error) {
	return m.Watch().Stats(ctx, at.mayRead, at.number("keys"))
}

// Last-Event-ID continues a stream.
func (m management) events(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	wants, err := at.events()
	if err != nil {
		return answer.Answer{}, err
	}
	if r.Method == http.MethodHead {
		return answer.Events(func(io.Writer, func()) {}), nil
	}
	l, err := m.Watch().Listen(at.from, r.Header.Get("Last-Event-ID"), at.number("recent"), wants)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Events(func(w io.Writer, flush func()) {
		defer l.Leave()
		flush()
		m.tell(r, w, flush, l)
	}), nil
}

func (at place) events() (func(api.Event) bool, error) {
	for _, name := range []string{"policy", "type"} {
		if at.query.Has(name) && at.query.Get(name) == "" {
			return nil, bad(name, "must not be empty")
		}
	}
	types := strings.FieldsFunc(at.query.Get("type"), func(c rune) bool { return c == ',' })
	for _, t := range types {
		if !slices.Contains(watch.Types, t) {
			return nil, bad("type", "%.64q: want one of %s", t, strings.Join(watch.Types, ", "))
		}
	}
	if _, err := queue.EncodeKey(at.query.Get("key")); err != nil {
		return nil, admit.InvalidKey(err)
	}
	return func(e api.Event) bool {
		return (!at.query.Has("policy") || e.Policy == at.query.Get("policy")) &&
			(!at.query.Has("key") || e.Key == at.query.Get("key")) &&
			(len(types) == 0 || slices.Contains(types, e.Type)) &&
			at.client.MayKey(access.Read, e.Policy, e.Key)
	}, nil
}

func (m management) tell(r *http.Request, w io.Writer, flush func(), l *watch.Listener) {
	alive, end, rights := time.NewTicker(aliveEvery), time.After(streamFor), m.rights()
	defer alive.Stop()
	say := func(event, reason string) {
		fmt.Fprintf(w, "event: %s\ndata: {\"reason\":%q}\n\n", event, reason)
	}
	askAgain := func() {
		say("end", "ask again")
		flush()
	}
	fmt.Fprint(w, ": events\n\n")
	if l.Missed {
		say("missed", "the events since then are no longer kept")
	}
	for {
		flush()
		var err error
		select {
		case e, more := <-l.Events:
			if m.rights() != rights {
				askAgain()
				return
			}
			for n := len(l.Events); more && err == nil; n-- {
				if err = writeEvent(w, e); n <= 0 {
					break
				}
				e, more = <-l.Events
			}
			if !more {
				say("end", l.Reason())
				flush()
				return
			}
		case <-alive.C:
			if m.rights() != rights {
				askAgain()
				return
			}
			_, err = fmt.Fprint(w, ": alive\n\n")
		case <-end:
			askAgain()
			return
		case <-r.Context().Done():
			return
		}
		if err != nil {
			return
		}
	}
}

func writeEvent(w io.Writer, e api.Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Type, text)
	return err
}
