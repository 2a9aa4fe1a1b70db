package store

import (
	"context"
	"errors"

	"github.com/penstock-mq/penstock/internal/errs"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// Delete begins the deletion of a policy: it retires, and [Store.Forget] removes it once its queue
// is empty. If the closed queue holds jobs, it is opened again and the error is a
// [*queue.PolicyInUseError], unless even permits dropping them. may, unless nil, can reject the
// current policy. It returns [queue.ErrNotFound] without one.
func (s *Store) Delete(ctx context.Context, name string, even bool,
	may func(policy.Entry) error) (err error) {
	defer errs.Annotate(&err, "delete policy %s", name)
	for {
		entry, err := s.Policy(ctx, name)
		if err == nil && may != nil {
			err = may(entry)
		}
		if err == nil && !entry.Deleting {
			err = s.condemn(ctx, entry, even)
		}
		if errors.Is(err, queue.ErrConflict) && ctx.Err() == nil {
			continue
		}
		return err
	}
}

func (s *Store) condemn(ctx context.Context, entry policy.Entry, even bool) error {
	name := entry.Policy.Name
	mark := func(ctx context.Context) error {
		_, err := s.change(ctx, name, func(current *record) (*record, error) {
			if current.at() != entry.Revision {
				return nil, queue.ErrConflict
			}
			current.Retired, current.Deleting = true, true
			return current, nil
		})
		return err
	}
	if !entry.Policy.HasQueue() {
		return mark(ctx)
	}
	return s.broker.CloseQueue(ctx, name, even, mark)
}

// Forget removes a deleted policy once its queue is empty: the stream, the overrides and the
// record. Dead letters stay. Call it until it reports that the policy is gone. It keeps a policy
// that was written again.
func (s *Store) Forget(ctx context.Context, name string) (gone bool, err error) {
	defer errs.Annotate(&err, "forget policy %s", name)
	current, err := s.stored(ctx, name)
	if err != nil || current.present() == nil {
		return err == nil, err
	}
	if !current.Deleting {
		return false, nil
	}
	if gone, err := s.broker.Retire(ctx, name); !gone {
		return false, err
	}
	if err := s.table.DeleteAll(ctx, name+".>"); err != nil {
		return false, err
	}
	if err := s.broker.Letters(name).DropEmpty(ctx); err != nil {
		return false, err
	}
	if err := s.broker.History(name).Drop(ctx); err != nil {
		return false, err
	}
	if current.File == "" || current.Left {
		err = s.table.Delete(ctx, name, current.revision)
	} else {
		_, err = s.change(ctx, name, func(now *record) (*record, error) {
			if now.at() != current.revision {
				return nil, queue.ErrConflict
			}
			now.Deleting, now.Deleted, now.Paused = false, true, false
			return now, nil
		})
	}
	if errors.Is(err, queue.ErrConflict) {
		return false, nil
	}
	return err == nil, err
}
