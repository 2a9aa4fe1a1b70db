package record

import (
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/job"
)

// settled has the outcomes of statuses, the preferred status first.
var settled = []struct {
	status      string
	kind        OutcomeKind
	unavailable bool
}{
	{job.SettledDone, OutcomeDone, false},
	{job.SettledFailed, OutcomeFailed, false},
	{job.SettledUnavailable, OutcomeFailed, true},
	{job.SettledUnreached, OutcomeFailed, true},
	{job.SettledPermanent, OutcomePermanent, false},
	{job.SettledThrottled, OutcomeThrottled, false},
	{job.SettledReturned, OutcomeUncounted, false},
	{job.SettledUnable, OutcomeUncounted, true},
}

const (
	// mostPause keeps a claimant's pause within a time.Duration.
	mostPause = 366 * 24 * time.Hour
	// MostError bounds the text of an error in messages and records, in bytes.
	MostError = 1024
)

// Settlement is the message about an outcome.
func (o Outcome) Settlement() job.Settlement {
	s := job.Settlement{Error: strings.Join(strings.Fields(o.Error), " "), Used: o.Used,
		Answer: string(o.Answer), Doubtful: o.Doubtful,
		RetryAfterMS: (min(o.RetryAfter, mostPause) + time.Millisecond - 1).Milliseconds()}
	for _, known := range settled {
		if s.Status == "" && known.kind == o.Kind && known.unavailable == o.Unavailable {
			s.Status = known.status
		}
	}
	if o.Answer == AnswerSeen && o.Kind.Answer() != AnswerSeen {
		s.Answer = job.SettledAnswered
	}
	if o.Again > 0 {
		s.Again = o.Again.String()
	}
	return s
}

// Settled reverses Settlement at a time, and bounds numbers and texts.
func Settled(s job.Settlement, now time.Time) (Outcome, error) {
	o := Outcome{Error: Clip(s.Error, MostError), Used: job.Used(s.Used),
		RetryAfter: Pause(s.RetryAfterMS)}
	for _, known := range settled {
		if known.status == s.Status {
			o.Kind, o.Unavailable = known.kind, known.unavailable
		}
	}
	switch {
	case s.Status == job.SettledUnreached, s.Answer == job.SettledUnsent:
		o.Answer = AnswerUnsent
	case s.Answer == job.SettledUnanswered:
		o.Answer = AnswerNone
	case s.Answer != job.SettledAnswered:
		o.Answer = o.Kind.Answer()
	}
	switch o.Kind {
	case "":
		return o, fmt.Errorf("status %.20q is not known", s.Status)
	case OutcomeDone:
		o.Error = ""
	case OutcomeThrottled:
		o.Doubtful = s.Doubtful
	case OutcomeFailed, OutcomeUncounted:
		if s.Again == "" {
			break
		}
		at, err := job.ParseInstant(s.Again, now, 0)
		if err != nil {
			return o, fmt.Errorf("again: %w", err)
		}
		o.Again = max(0, at.Sub(now))
	}
	return o, nil
}

// Pause returns a claimant's pause, within bounds.
func Pause(ms int64) time.Duration {
	return min(time.Duration(max(ms, 0)), mostPause/time.Millisecond) * time.Millisecond
}

// Clip cuts a text to most bytes and an ellipsis.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
