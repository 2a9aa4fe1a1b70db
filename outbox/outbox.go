// Package outbox submits jobs if and only if the PostgreSQL transactions that inserted them commit.
//
//	err = outbox.Insert(ctx, tx, penstock.Job{Policy: "mail", Key: "user-42", Body: body})
//	err = tx.Commit(ctx)
//
// A [Relay], in any program, submits the rows and deletes them. Rows have Idempotency-Keys: a row
// that is submitted again after a crash, within the policy's duplicate_window, makes no second job.
package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/queue"
)

// Schema creates the table penstock_outbox if it does not exist.
//
//go:embed schema.sql
var Schema string

const insert = `INSERT INTO penstock_outbox (policy, key, job, body) VALUES ($1, $2, $3, $4)`

// Insert inserts a job in a transaction of pgx. It ignores Job.Wait, and makes a missing
// IdempotencyKey.
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

// row rejects jobs that no relay could submit.
func row(j penstock.Job) ([]any, error) {
	body := j.Body
	if body == nil {
		body = []byte{}
	}
	j.Body, j.Wait = nil, 0
	j.IdempotencyKey = cmp.Or(j.IdempotencyKey, j.Header.Get(job.HeaderIdempotencyKey), rand.Text())
	_, err := queue.EncodeKey(j.Key)
	switch {
	case j.Policy == "":
		return nil, errors.New("it has no policy")
	case err != nil:
		return nil, err
	case len(body) > admission.MaxBody:
		return nil, fmt.Errorf("%w: %d bytes", admission.ErrTooLarge, len(body))
	}
	if all := fmt.Sprint(j); !utf8.ValidString(all) || strings.Contains(all, "\x00") {
		// JSON would make different keys of idempotency equal.
		return nil, errors.New("its key, headers and names must be UTF-8 without NUL")
	}
	text, err := json.Marshal(j)
	return []any{j.Policy, j.Key, string(text), body}, err
}
