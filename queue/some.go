package queue

import (
	"context"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// DeadLetterFilter selects dead letters that match every field, all if it is zero.
type DeadLetterFilter struct {
	Keyed         bool // only the bucket Key
	Key           job.Key
	Reason        job.Reason // empty: any
	Since, Before time.Time  // of burial; zero: unbounded
	Through       uint64     // up to this ID; 0: any
}

func (s DeadLetterFilter) has(l StoredLetter) bool {
	return (!s.Keyed || l.Key == s.Key) && (s.Reason == "" || string(s.Reason) == l.Reason) &&
		!l.Buried.Before(s.Since) && (s.Before.IsZero() || l.Buried.Before(s.Before))
}

// each calls do for the selected letters that exist now, in order, a page at a time.
func (l Letters) each(ctx context.Context, some DeadLetterFilter,
	do func(StoredLetter) error) error {
	info, err := l.b.js.StreamInfo(ctx, l.b.names.DeadStream(l.policy), "")
	if err != nil {
		return unlessGone(err)
	}
	last := info.State.LastSeq
	if some.Through > 0 {
		last = min(last, some.Through)
	}
	subject := ""
	if _, err := job.ParseKey(string(some.Key)); some.Keyed && err == nil {
		subject = l.b.names.Dead(l.policy, some.Key)
	}
	for after := uint64(0); after < last; {
		letters, err := l.list(ctx, subject, after, lettersPage)
		if err != nil || len(letters) == 0 {
			return err
		}
		for _, letter := range letters {
			if after = letter.ID; after > last {
				break
			}
			if !some.has(letter) {
				continue
			}
			if err := do(letter); err != nil {
				return err
			}
		}
	}
	return nil
}

// DiscardSome deletes the selected letters, and returns the number deleted, also after an error. A
// selection by ID, or of all, goes at once.
func (l Letters) DiscardSome(ctx context.Context,
	some DeadLetterFilter) (discarded uint64, err error) {
	defer annotate(&err, "discard dead letters of %s", l.policy)
	stream, err := l.stream()
	if err != nil {
		return 0, err
	}
	if some == (DeadLetterFilter{Through: some.Through}) {
		discarded, err = l.b.purge(ctx, stream, "", some.Through)
		return discarded, unlessGone(err)
	}
	err = l.each(ctx, some, func(letter StoredLetter) error {
		deleted, err := l.delete(ctx, letter.ID)
		if deleted {
			discarded++
		}
		return err
	})
	return discarded, err
}
