package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/admission/answer"
	"github.com/penstock-mq/penstock/admission/watch"
	"github.com/penstock-mq/penstock/queue/job"
)

// What happens: events as they come, and figures of the last minute.

const (
	// aliveEvery is how often a quiet stream of events says that it is one.
	aliveEvery = 15 * time.Second
	// streamFor is how long a stream of events goes on before the client asks again.
	streamFor = 15 * time.Minute
)

func (m management) stats(r *http.Request, at place) (answer.Answer, error) {
	if err := noBody(r); err != nil {
		return answer.Answer{}, err
	}
	keys, err := at.number("keys", 0, 0, watch.MostKeys)
	if err != nil {
		return answer.Answer{}, err
	}
	return document(m.service.Watch().Stats(func(policy string) bool {
		return at.client.MayPolicy(access.Read, policy)
	}, int(keys)))
}

// events streams server-sent events. The header Last-Event-ID continues a stream.
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
	recent, err := at.number("recent", 0, 0, watch.MaxRecent)
	if err != nil {
		return answer.Answer{}, err
	}
	l, err := m.service.Watch().Listen(at.from, r.Header.Get("Last-Event-ID"), int(recent), wants)
	if err != nil {
		return answer.Answer{}, err
	}
	return answer.Events(func(w io.Writer, flush func()) {
		defer l.Leave()
		flush()
		m.tell(r, w, flush, l)
	}), nil
}

// events reads which events are wanted, of those that the client may see.
func (at place) events() (func(watch.Event) bool, error) {
	for _, name := range []string{"policy", "type"} {
		if at.query.Has(name) && at.query.Get(name) == "" {
			return nil, &admission.RequestError{Field: name, Reason: "is empty"}
		}
	}
	types := strings.FieldsFunc(at.query.Get("type"), func(c rune) bool { return c == ',' })
	for _, t := range types {
		if !slices.Contains(watch.Types, t) {
			return nil, &admission.RequestError{Field: "type", Reason: fmt.Sprintf(
				"%.64q is none of %s", t, strings.Join(watch.Types, ", "))}
		}
	}
	if _, err := job.EncodeKey(at.query.Get("key")); err != nil {
		return nil, admission.InvalidKey(err)
	}
	return func(e watch.Event) bool {
		return (!at.query.Has("policy") || e.Policy == at.query.Get("policy")) &&
			(!at.query.Has("key") || e.Key == at.query.Get("key")) &&
			(len(types) == 0 || slices.Contains(types, e.Type)) &&
			at.client.MayKey(access.Read, e.Policy, e.Key)
	}, nil
}

// tell writes what a listener hears until the client leaves, the listener is ended, or it is time
// to ask again. That it is also when who may ask has changed: this client may be gone from them.
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
		say("missed", "the events after the last one are not kept any more")
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

// writeEvent writes an event.
func writeEvent(w io.Writer, e watch.Event) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err // strings, numbers and an instant: cannot be
	}
	_, err = fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", e.ID, e.Type, text)
	return err
}
