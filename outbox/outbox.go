// Package outbox submits jobs that PostgreSQL transactions have inserted: a job is submitted if its
// transaction commits, and only then.
//
//	err = outbox.Insert(ctx, tx, penstock.Job{Policy: "mail", Key: "user-42", Body: body})
//	err = tx.Commit(ctx)
//
// A [Relay], in the same program or another one, submits the rows and deletes them. Each row has an
// Idempotency-Key, so a row that is submitted again after a crash makes no second job, as long as a
// relay returns within the policy's duplicate_window.
package outbox

import (
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/queue/job"
)

// Schema creates the table penstock_outbox, or does nothing if it exists.
//
//go:embed schema.sql
var Schema string

const insert = `INSERT INTO penstock_outbox (policy, key, job, body) VALUES ($1, $2, $3, $4)`

// Insert inserts a job in a transaction of pgx. Job.Wait is ignored, and an IdempotencyKey made up
// where there is none.
func Insert(ctx context.Context, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, j penstock.Job) error {
	args, err := row(j)
	if err == nil {
		_, err = tx.Exec(ctx, insert, args...)
	}
	return wrapped(err)
}

// InsertSQL is [Insert] in a transaction of database/sql, with any driver.
func InsertSQL(ctx context.Context, tx interface {
	ExecContext(ctx context.Context, sql string, args ...any) (sql.Result, error)
}, j penstock.Job) error {
	args, err := row(j)
	if err == nil {
		_, err = tx.ExecContext(ctx, insert, args...)
	}
	return wrapped(err)
}

func wrapped(err error) error {
	if err != nil {
		err = fmt.Errorf("insert a job: %w", err)
	}
	return err
}

// row returns a job as a row, or what no relay could submit.
func row(j penstock.Job) ([]any, error) {
	body := j.Body
	if body == nil {
		body = []byte{}
	}
	if j.Body, j.Wait = nil, 0; j.IdempotencyKey == "" {
		j.IdempotencyKey = rand.Text()
	}
	_, err := job.EncodeKey(j.Key)
	switch {
	case j.Policy == "":
		return nil, errors.New("it has no policy")
	case err != nil:
		return nil, err
	case len(body) > admission.MaxBody:
		return nil, fmt.Errorf("%w: %d bytes", admission.ErrTooLarge, len(body))
	}
	text, err := json.Marshal(j)
	return []any{j.Policy, j.Key, string(text), body}, err
}
