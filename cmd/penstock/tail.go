package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
)

func (a *app) tail() *cobra.Command {
	var most uint
	cmd := &cobra.Command{
		Use:   "tail [POLICY]",
		Short: "Print job events as they happen",
		Long: `Prints job events of all policies or of one, with --key of one bucket. It reconnects after
a lost connection and prints the missed events the server has kept.`,
		Example: "  penstock tail\n  penstock tail mail --key acme --type failed,dead",
		RunE: func(cmd *cobra.Command, _ []string) error {
			parameters := []string{"key", "type"}
			if a.policy != "" {
				_, err := a.ask(cmd.Context(), request{path: path("policies", a.policy)})
				// A client with rights to some keys does not see the policy.
				if err != nil && !is(err, cli.Forbidden) {
					return err
				}
				parameters = append(parameters, "policy="+a.policy)
			}
			out := colorprofile.NewWriter(a.Out, os.Environ())
			events := path("events") + query(cmd, parameters...)
			return a.follow(cmd.Context(), events, func(e event) error {
				err := a.print(out, e)
				if most--; err == nil && most == 0 {
					err = errEnough
				}
				return err
			})
		},
	}
	a.keyFlag(cmd, "only the bucket of this `key`")
	cmd.Flags().StringSliceP("type", "t", nil, "only events of these `types`")
	_ = cmd.RegisterFlagCompletionFunc("type",
		cobra.FixedCompletions(slices.Sorted(maps.Keys(tones)), cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().UintVarP(&most, "limit", "n", 0, "stop after this many events")
	return cmd
}

type event struct {
	api.Event
	text []byte
}

var errEnough = errors.New("enough")

const pause = time.Second

type stream struct {
	path string
	told func(event) error

	last           string // ID
	answered, lost bool
}

// follow reconnects until ctx ends.
func (a *app) follow(ctx context.Context, path string, told func(event) error) error {
	for s := (stream{path: path, told: told}); ; {
		err := a.listen(ctx, &s)
		switch {
		case errors.Is(err, errEnough):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !s.answered:
			return err
		}
		if _, told := errors.AsType[*problem](err); told && !is(err, cli.Unavailable) {
			return err
		}
		if err != nil {
			if !s.lost {
				fmt.Fprintln(a.Err, "penstock:", cli.Plain(err.Error())+"; reconnecting")
			}
			if s.lost = true; !wait(ctx, pause) {
				return ctx.Err()
			}
		}
	}
}

// The server sends a sign of life every 15 s.
const quiet = 45 * time.Second

func (a *app) listen(ctx context.Context, s *stream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := func() { cancel(context.DeadlineExceeded) }
	q := request{path: s.path, header: http.Header{}}
	if s.last != "" {
		q.header.Set("Last-Event-ID", s.last)
	}
	silence := time.AfterFunc(a.timeout, silent)
	defer silence.Stop()
	response, err := a.send(ctx, q)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.Header.Get("Content-Type") != "text/event-stream" {
		return errForeign
	}
	silence.Reset(quiet)
	if s.lost {
		fmt.Fprintln(a.Err, "penstock: connected again")
	}
	s.answered, s.lost = true, false
	in := bufio.NewReader(response.Body)
	var kind, id string
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			return &noAnswer{server: a.server,
				err: fmt.Errorf("lost the event stream: %w", err)}
		}
		silence.Reset(quiet)
		name, value, _ := strings.Cut(strings.TrimSuffix(text, "\n"), ": ")
		switch name {
		case "id":
			id = value
		case "event":
			kind = value
		case "data":
			switch e := (event{text: []byte(value)}); kind {
			case "end":
				return nil
			case "missed":
				fmt.Fprintln(a.Err, "penstock: some events were missed")
			default:
				if err := read(e.text, &e.Event); err != nil {
					return err
				}
				if err := s.told(e); err != nil {
					return err
				}
			}
			s.last = id
		}
	}
}

// tones are from the colours that users can configure.
var tones = map[string]int{
	"accepted": 6, "started": 4, "progress": 4, "done": 2,
	"failed": 3, "throttled": 3, "dead": 1, "cancelled": 5,
	"breaker_opened": 1, "breaker_closed": 2, "adapted": 3,
	"limit_broken": 1, "schedule_refused": 3, "schedule_missed": 3,
	"callback_lost": 1,
}

func (a *app) print(out io.Writer, e event) error {
	if a.JSON {
		return a.Printf("%s\n", e.text)
	}
	_, err := fmt.Fprintf(out, "%s  \x1b[3%dm%-9s\x1b[m  %s  %s%s\n",
		e.At.Local().Format("15:04:05.000"), tones[e.Type], cli.Line(e.Type, 20),
		cli.Line(e.Job, 60), keyName(e.Key), e.details())
	return err
}

func (e *event) details() string {
	var b strings.Builder
	if e.Attempt > 1 {
		fmt.Fprintf(&b, "  attempt %d", e.Attempt)
	}
	switch e.Type {
	case "started":
		fmt.Fprintf(&b, "  waited %s", cli.Short(milliseconds(e.WaitMS)))
	case "done", "failed", "throttled":
		fmt.Fprintf(&b, "  took %s", cli.Short(milliseconds(e.DurationMS)))
	}
	if e.PauseMS > 0 {
		fmt.Fprintf(&b, "  pause %s", cli.Short(milliseconds(e.PauseMS)))
	}
	if e.Reason != "" {
		b.WriteString("  " + cli.Line(e.Reason, 40))
	}
	if e.All {
		b.WriteString("  all buckets")
	}
	if e.Progress != "" {
		b.WriteString("  " + cli.Line(e.Progress, 200))
	}
	if e.Error != "" {
		b.WriteString("  " + cli.Line(e.Error, 200))
	}
	return b.String()
}
