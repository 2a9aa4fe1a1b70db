package queue

import (
	"context"
	"time"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// Some says which dead letters of a policy are meant: those to which all of it applies. The zero
// value means all.
type Some struct {
	Keyed         bool // of one bucket, that of Key
	Key           job.Key
	Reason        job.Reason // for which they were buried; empty: any
	Since, Before time.Time  // when they were; zero: at any time
	Through       uint64     // up to this ID; 0: any
}

// has reports whether a letter is meant.
func (s Some) has(l StoredLetter) bool {
	return (!s.Keyed || l.Key == s.Key) && (s.Reason == "" || string(s.Reason) == l.Reason) &&
		!l.Buried.Before(s.Since) && (s.Before.IsZero() || l.Buried.Before(s.Before))
}

// each calls do for those of the policy's letters that are meant and that there are now, in their
// order, a page at a time: those that come meanwhile are left for another time. Of one bucket only
// its own are read, however many there are of others.
func (l Letters) each(ctx context.Context, some Some, do func(StoredLetter) error) error {
	info, err := l.b.js.StreamInfo(ctx, l.b.names.DeadStream(l.policy), "")
	if jsapi.HasCode(err, jsapi.CodeStreamNotFound) {
		return nil
	}
	if err != nil {
		return jsapi.Translate(err)
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

// DiscardSome deletes for good the letters that are meant, one after the other, and returns how
// many it deleted before an error, or before the context ended.
func (l Letters) DiscardSome(ctx context.Context, some Some) (discarded uint64, err error) {
	if _, err := l.stream(); err != nil {
		return 0, err
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
