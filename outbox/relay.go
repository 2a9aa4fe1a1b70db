package outbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/base/seldom"
)

// Relay submits the rows of the outbox and deletes them, in order per policy and key. Relays lock
// their current keys, so any number of them can share the work.
//
// After a refusal a key waits for its retry-after. A row that can never be submitted, for example
// of an unknown policy, is set aside with its error, and logged.
type Relay struct {
	DB *pgxpool.Pool
	// Jobs is a *penstock.Client or *penstock.Penstock.
	Jobs interface {
		Submit(ctx context.Context, j penstock.Job) (penstock.Ticket, error)
	}
	Poll   time.Duration // for rows without a notification; default 1 s
	Logger *slog.Logger  // default [slog.Default]

	policy, key string // the last of a batch: the next one begins after it
	waits       *seldom.Log
}

const (
	mostKeys = 64 // in a batch
	// mostRows and mostBytes are per key; a larger row comes alone.
	mostRows, mostBytes   = 100, 256 << 10
	submitFor, retryAfter = 10 * time.Second, time.Second // of each submission
)

// Run relays until the context ends, and returns nil. It takes one connection of the pool.
func (r *Relay) Run(ctx context.Context) error {
	r.waits = seldom.New(cmp.Or(r.Logger, slog.Default()))
	for ctx.Err() == nil {
		if err := r.listen(ctx); err != nil && ctx.Err() == nil {
			r.waits.Log("database", slog.LevelWarn, "outbox not readable", "error", err)
			select {
			case <-time.After(retryAfter):
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// listen relays until the connection fails.
func (r *Relay) listen(ctx context.Context) error {
	pooled, err := r.DB.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // a listening connection must not return to the pool
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "LISTEN penstock_outbox"); err != nil {
		return err
	}
	for {
		n, err := r.batch(ctx, conn)
		if err != nil {
			return err
		}
		timeout := cmp.Or(r.Poll, time.Second)
		if n > 0 {
			timeout = 0
		}
		for err == nil {
			wait, cancel := context.WithTimeout(ctx, timeout)
			_, err = conn.WaitForNotification(wait)
			cancel()
			timeout = 0 // for those that the connection has kept
		}
		if ctx.Err() != nil || conn.IsClosed() {
			return err
		}
	}
}

// lockKeys finds the first waiting row of each key after another one, skipping from key to key in
// the index.
const lockKeys = `WITH RECURSIVE heads AS (
	(SELECT policy, key, retry_at FROM penstock_outbox
		WHERE error IS NULL AND (policy, key) > ($1, $2) ORDER BY policy, key, id LIMIT 1)
	UNION ALL
	SELECT next.* FROM heads, LATERAL (SELECT policy, key, retry_at FROM penstock_outbox
		WHERE error IS NULL AND (policy, key) > (heads.policy, heads.key)
		ORDER BY policy, key, id LIMIT 1) AS next)
SELECT policy, key FROM heads WHERE retry_at <= now()
	AND pg_try_advisory_xact_lock(hashtextextended(policy || '/' || key, 0)) LIMIT $3`

// Rows are read after their keys are locked, because other relays could delete them: so each
// statement must see what has been committed.
const readRows = `SELECT rows.* FROM unnest($1::text[], $2::text[]) AS keys (policy, key),
	LATERAL (SELECT id, policy, key, job, body FROM (SELECT *,
			sum(octet_length(body)) OVER (ORDER BY id) - octet_length(body) AS before
		FROM (SELECT * FROM penstock_outbox AS o
			WHERE o.policy = keys.policy AND o.key = keys.key AND error IS NULL
			ORDER BY id LIMIT $3) AS first) AS summed
		WHERE before < $4) AS rows
	ORDER BY id`

type waiting struct {
	ID          int64
	Policy, Key string
	Job         []byte
	Body        []byte
}

func (r *Relay) batch(ctx context.Context, conn *pgx.Conn) (n int, err error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, err
	}
	defer tx.Rollback(context.WithoutCancel(ctx))
	var policies, keys []string
	var policy, key string
	found, err := tx.Query(ctx, lockKeys, r.policy, r.key, mostKeys)
	if err == nil {
		_, err = pgx.ForEachRow(found, []any{&policy, &key}, func() error {
			policies, keys = append(policies, policy), append(keys, key)
			return nil
		})
	}
	again := r.policy != ""
	r.policy, r.key = policy, key
	if len(keys) < mostKeys {
		r.policy, r.key = "", ""
	}
	switch {
	case err != nil:
		return 0, err
	case len(keys) == 0 && again:
		return 1, nil
	case len(keys) == 0:
		return 0, nil
	}
	found, err = tx.Query(ctx, readRows, policies, keys, mostRows, mostBytes)
	if err != nil {
		return 0, err
	}
	rows, err := pgx.CollectRows(found, pgx.RowToStructByPos[waiting])
	if err != nil {
		return 0, err
	}
	byKey := map[[2]string][]waiting{}
	for _, w := range rows {
		k := [2]string{w.Policy, w.Key}
		byKey[k] = append(byKey[k], w)
	}
	var wait sync.WaitGroup
	all := make(chan outcome, len(byKey))
	for _, rows := range byKey {
		wait.Go(func() { all <- r.submit(ctx, rows) })
	}
	wait.Wait()
	close(all)
	changes := &pgx.Batch{}
	for o := range all {
		changes.Queue("DELETE FROM penstock_outbox WHERE id = ANY ($1)", o.done)
		if o.at != 0 {
			changes.Queue("UPDATE penstock_outbox SET error = $2, retry_at = now() + $3 "+
				"WHERE id = $1", o.at, o.fault, o.retry)
		}
	}
	// Delete submitted rows even after the context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), submitFor)
	defer cancel()
	if err := tx.SendBatch(ctx, changes).Close(); err != nil {
		return 0, err
	}
	return len(keys), tx.Commit(ctx)
}

type outcome struct {
	done  []int64
	at    int64         // the row that was not submitted, or 0
	fault *string       // why it can never be submitted; nil: it waits
	retry time.Duration // for how long
}

// submit submits rows in order, until one waits or is set aside.
func (r *Relay) submit(ctx context.Context, rows []waiting) (o outcome) {
	for _, w := range rows {
		err := r.submitOne(ctx, w)
		if err == nil {
			o.done = append(o.done, w.ID)
			continue
		}
		if o.at, o.retry = w.ID, retryAfter; never(err) {
			text := err.Error()
			o.fault, o.retry = &text, 0
			cmp.Or(r.Logger, slog.Default()).Warn("outbox row set aside", "id", w.ID,
				"policy", w.Policy, "key", w.Key, "error", err)
		} else if refused, ok := errors.AsType[*penstock.RefusedError](err); ok {
			o.retry = refused.RetryAfter
		} else if ctx.Err() == nil {
			r.waits.Log("submissions", slog.LevelWarn, "outbox row not submitted: it is repeated",
				"id", w.ID, "policy", w.Policy, "key", w.Key, "error", err)
		}
		break
	}
	return o
}

func (r *Relay) submitOne(ctx context.Context, w waiting) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var j penstock.Job
	if err := json.Unmarshal(w.Job, &j); err != nil {
		return &admission.RequestError{Field: "job", Reason: err.Error()}
	}
	j.Policy, j.Key, j.Body = w.Policy, w.Key, w.Body
	ctx, cancel := context.WithTimeout(ctx, submitFor)
	defer cancel()
	_, err := r.Jobs.Submit(ctx, j)
	if _, ended := errors.AsType[*admission.EndedError](err); ended {
		return nil
	}
	return err
}

func never(err error) bool {
	for _, never := range []error{admission.ErrUnknownPolicy, admission.ErrConflict,
		admission.ErrTooLarge, admission.ErrOtherPayload, admission.ErrDeadlineUnreachable} {
		if errors.Is(err, never) {
			return true
		}
	}
	_, invalid := errors.AsType[*admission.RequestError](err)
	return invalid
}
