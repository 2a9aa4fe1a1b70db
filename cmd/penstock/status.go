package main

import (
	"context"
	"errors"
	"net/http"
)

// Exit statuses, for scripts.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitNotFound    = 4
	exitForbidden   = 5
	exitConflict    = 6
	exitUnavailable = 7
	exitInterrupted = 130
)

const statusHelp = `Exit status:
  0    done
  1    any other error
  2    invalid command line or request
  3    refused: a bucket is full, or a limit is exhausted
  4    no such policy, job or dead letter
  5    not permitted: wrong token, host or site
  6    not possible in the current state of the policy or job
  7    no answer, or service unavailable
  130  interrupted`

type usageError struct{ error }

func (u usageError) Unwrap() error { return u.error }

// said is the exit status of a command that has printed its error.
type said int

func (said) Error() string { return "said" }

func status(err error) int {
	if err == nil {
		return exitDone
	}
	if errors.Is(err, context.Canceled) {
		return exitInterrupted
	}
	if s, ok := errors.AsType[said](err); ok {
		return int(s)
	}
	if _, ok := errors.AsType[usageError](err); ok {
		return exitUsage
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return statusOf(p.Status)
	}
	if _, ok := errors.AsType[*noAnswer](err); ok {
		return exitUnavailable
	}
	return exitFailed
}

func statusOf(code int) int {
	switch code {
	case http.StatusTooManyRequests, http.StatusInsufficientStorage:
		return exitRefused
	case http.StatusNotFound:
		return exitNotFound
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusMisdirectedRequest:
		return exitForbidden
	case http.StatusConflict, http.StatusPreconditionFailed:
		return exitConflict
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		http.StatusRequestTimeout:
		return exitUnavailable
	}
	if code >= 400 && code < 500 {
		return exitUsage
	}
	return exitFailed
}
