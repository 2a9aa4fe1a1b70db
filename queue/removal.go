package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// PolicyInUseError refuses to delete a policy whose queue holds jobs.
type PolicyInUseError struct {
	Policy string
	Jobs   uint64 // waiting, backing off and running
}

// Error says how many jobs are in the way.
func (e *PolicyInUseError) Error() string {
	return fmt.Sprintf("policy %s holds %d jobs", e.Policy, e.Jobs)
}

// DeletePolicy begins to delete a policy: it retires, takes no jobs any more and cannot be seen as anything but on its
// way out, until [Broker.ForgetPolicy] finds its queue empty and removes what is left of it. The door of its queue is
// closed before anyone looks into it; when it holds jobs the door is opened again and the answer is a
// [*PolicyInUseError], unless even those are to go: dropping them is the caller's. May refuses what is there, as the
// change of [Broker.ChangePolicy] does; nil allows. It answers [ErrNotFound] when there is no such policy.
func (b *Broker) DeletePolicy(ctx context.Context, name string, even bool, may func(PolicyEntry) error) error {
	for {
		entry, err := b.Policy(ctx, name)
		if err == nil && may != nil {
			err = may(entry)
		}
		if err == nil && !entry.Deleting {
			err = b.condemn(ctx, entry, even)
		}
		if errors.Is(err, ErrConflict) && ctx.Err() == nil {
			continue // changed meanwhile
		}
		if err != nil {
			return fmt.Errorf("delete policy %s: %w", name, err)
		}
		return nil
	}
}

// condemn marks a policy as one to be deleted, with the door of its queue closed.
func (b *Broker) condemn(ctx context.Context, entry PolicyEntry, even bool) error {
	name := entry.Policy.Name
	mark := func(ctx context.Context) error {
		_, err := b.changePolicy(ctx, name, func(current *policyRecord) (*policyRecord, error) {
			if current.at() != entry.Revision {
				return nil, ErrConflict
			}
			next := *current
			next.Retired, next.Deleting = true, true
			return &next, nil
		})
		return err
	}
	if !entry.Policy.HasQueue() {
		return mark(ctx)
	}
	return b.locked(ctx, name, func(ctx context.Context) (err error) {
		info, err := b.streamInfo(ctx, b.names.Stream(name), "")
		if hasCode(err, codeStreamNotFound) {
			return mark(ctx)
		}
		if err != nil {
			return translate(err)
		}
		if err := checkVersion(info.Config.Metadata); err != nil {
			return err
		}
		if info.State.Msgs > 0 && !even { // most likely still so when the door is closed
			return &PolicyInUseError{name, info.State.Msgs}
		}
		if !b.isClosed(name, info.Config) {
			defer func() {
				if err == nil {
					return
				}
				ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
				defer cancel()
				if openErr := b.updateStream(ctx, info.Config); openErr != nil {
					err = errors.Join(err, fmt.Errorf("open the door again: %w", openErr))
				}
			}()
			if err := b.closeDoor(ctx, name, info.Config); err != nil {
				return err
			}
		}
		state, err := b.settled(ctx, name)
		if err != nil {
			return err
		}
		if state.Msgs > 0 && !even {
			return &PolicyInUseError{name, state.Msgs}
		}
		return mark(ctx)
	})
}

// ForgetPolicy removes what is left of a policy that [Broker.DeletePolicy] has begun to delete, once its queue is empty:
// the stream, the overrides of its keys, and the record, so that the name is free. Its dead letters stay. It reports
// whether the policy is gone; call it from time to time until then. A policy that came back meanwhile is left alone, and
// is not gone.
func (b *Broker) ForgetPolicy(ctx context.Context, name string) (gone bool, err error) {
	if gone, err = b.forget(ctx, name); err != nil {
		return false, fmt.Errorf("forget policy %s: %w", name, err)
	}
	return gone, nil
}

func (b *Broker) forget(ctx context.Context, name string) (gone bool, err error) {
	current, err := b.policyRecord(ctx, name)
	if err != nil || current.present() == nil {
		return err == nil, err
	}
	if !current.Deleting {
		return false, nil
	}
	if gone, err := b.retire(ctx, name); !gone {
		return false, err
	}
	if err := b.deleteOverrides(ctx, name); err != nil {
		return false, err
	}
	if err := b.DropLetterless(ctx, name); err != nil {
		return false, err
	}
	if current.File == "" || current.Left {
		err = b.policies.Delete(ctx, name, current.revision)
	} else {
		_, err = b.changePolicy(ctx, name, func(now *policyRecord) (*policyRecord, error) {
			if now.at() != current.revision {
				return nil, ErrConflict
			}
			next := *now
			next.Deleting, next.Deleted, next.Paused = false, true, false
			return &next, nil
		})
	}
	if errors.Is(err, ErrConflict) {
		return false, nil // somebody else was faster, with this or something else: the next call tells
	}
	return err == nil, err
}

// DropLetterless deletes the stream of a policy's dead letters when there are none in it, and what the stream that all
// policies once shared still holds of them: it would be copied again. The policy must be gone, or nearly so: nothing may
// bury a job of it meanwhile.
func (b *Broker) DropLetterless(ctx context.Context, policy string) error {
	info, err := b.streamInfo(ctx, b.names.DeadStream(policy), "")
	if err == nil && info.State.Msgs == 0 {
		if len(info.Config.Sources) > 0 {
			_, err := b.purge(ctx, b.names.sharedDeadStream(), b.names.Dead(policy, ">"), 0)
			if err != nil && !errors.Is(err, ErrNoStream) {
				return err
			}
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		err = b.js.DeleteStream(ctx, info.Config.Name)
	}
	if err != nil && !hasCode(err, codeStreamNotFound) {
		return translate(err)
	}
	return nil
}

// deleteOverrides takes the overrides of all keys of a policy away, one by one: who watches them must hear of each.
func (b *Broker) deleteOverrides(ctx context.Context, name string) error {
	records, err := b.policies.List(ctx, name+".>")
	if err != nil {
		return err
	}
	pending := make(chan string, len(records))
	for _, r := range records {
		pending <- r.Key
	}
	close(pending)
	failed := make(chan error, readers)
	var deleting sync.WaitGroup
	for range min(readers, len(records)) {
		deleting.Go(func() {
			for key := range pending {
				if err := b.policies.Delete(ctx, key, 0); err != nil {
					failed <- err
					return
				}
			}
		})
	}
	deleting.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}
