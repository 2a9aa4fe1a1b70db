// Package cli has what the command lines share: how they read their usage, print and fail.
package cli

import (
	"context"
	"errors"
)

// Exit statuses, for scripts.
const (
	Done        = 0
	Failed      = 1
	Usage       = 2
	Refused     = 3
	NotFound    = 4
	Forbidden   = 5
	Conflict    = 6
	Unavailable = 7
	Interrupted = 130
)

type misuse struct{ error }

func (m misuse) Unwrap() error { return m.error }

func (misuse) ExitStatus() int { return Usage }

// Misuse is an error of the command line, or of a file that it names.
func Misuse(err error) error { return misuse{err} }

// Said is the exit status of a command that has printed its error.
type Said int

func (Said) Error() string { return "said" }

// ExitStatus is the number itself.
func (s Said) ExitStatus() int { return int(s) }

// Status is the exit status of an error.
func Status(err error) int {
	var of interface{ ExitStatus() int }
	switch {
	case err == nil:
		return Done
	case errors.Is(err, context.Canceled):
		return Interrupted
	case errors.As(err, &of):
		return of.ExitStatus()
	}
	return Failed
}
