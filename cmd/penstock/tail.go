package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/colorprofile"
	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/admission/watch"
	"github.com/penstock-mq/penstock/api"
)

func (a *app) tail() *cobra.Command {
	var types []string
	var most uint
	cmd := &cobra.Command{
		Use:   "tail [POLICY]",
		Short: "Print job events as they happen",
		Long: `Prints job events of all policies or of one, with --key of one bucket. It reconnects after
a lost connection and prints the missed events the server has kept.`,
		Example: "  penstock tail\n  penstock tail mail --key acme --type failed,dead",
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if a.policy != "" {
				_, err := a.ask(cmd.Context(), request{path: path("policies", a.policy)})
				// A client with rights to some keys does not see the policy.
				if err != nil && status(err) != exitForbidden {
					return err
				}
				query.Set("policy", a.policy)
			}
			if a.keyed {
				query.Set("key", a.key)
			}
			if len(types) > 0 {
				query.Set("type", strings.Join(types, ","))
			}
			out := colorprofile.NewWriter(a.out, os.Environ())
			return a.follow(cmd.Context(), query, func(e event) error {
				err := a.print(out, e)
				if most--; err == nil && most == 0 {
					err = errEnough
				}
				return err
			})
		},
	}
	a.keyFlag(cmd, "only the bucket of this `key`")
	cmd.Flags().StringSliceVarP(&types, "type", "t", nil, "only events of these `types`")
	_ = cmd.RegisterFlagCompletionFunc("type",
		cobra.FixedCompletions(watch.Types, cobra.ShellCompDirectiveNoFileComp))
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
	query url.Values
	told  func(event) error

	last           string // ID
	answered, lost bool
}

// follow reconnects until ctx ends.
func (a *app) follow(ctx context.Context, query url.Values, told func(event) error) error {
	for s := (stream{query: query, told: told}); ; {
		err := a.listen(ctx, &s)
		switch {
		case errors.Is(err, errEnough):
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && !s.answered:
			return err
		}
		if p, ok := errors.AsType[*problem](err); ok && statusOf(p.Status) != exitUnavailable {
			return err
		}
		if err != nil {
			if !s.lost {
				fmt.Fprintln(a.err, "penstock:", plain(err.Error())+"; reconnecting")
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
	from := strings.TrimSuffix("/v1/events?"+s.query.Encode(), "?")
	r, err := a.prepare(ctx, request{path: from})
	if err != nil {
		return err
	}
	if s.last != "" {
		r.Header.Set("Last-Event-ID", s.last)
	}
	silence := time.AfterFunc(a.timeout, silent)
	defer silence.Stop()
	response, err := a.send(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.Header.Get("Content-Type") != "text/event-stream" {
		return errForeign
	}
	silence.Reset(quiet)
	if s.lost {
		fmt.Fprintln(a.err, "penstock: connected again")
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
			ended, err := a.take(kind, value, s.told)
			if ended || err != nil {
				return err
			}
			s.last = id
		}
	}
}

// take reports whether the event ends the stream.
func (a *app) take(kind, data string, told func(event) error) (ended bool, err error) {
	switch kind {
	case "end":
		return true, nil
	case "missed":
		fmt.Fprintln(a.err, "penstock: some events were missed")
		return false, nil
	}
	var e event
	e.text = []byte(data)
	if err := read(e.text, &e.Event); err != nil {
		return true, err
	}
	return false, told(e)
}

// tones are from the 16 colours that users can configure.
var tones = map[string]lipgloss.Style{
	"accepted": tone("8"), "started": tone("4"), "progress": tone("4"), "done": tone("2"),
	"failed": tone("3"), "throttled": tone("3"), "dead": tone("1"), "cancelled": tone("5"),
	"breaker_opened": tone("1"), "breaker_closed": tone("2"),
}

func tone(colour string) lipgloss.Style {
	return lipgloss.NewStyle().Foreground(lipgloss.Color(colour))
}

func (a *app) print(out io.Writer, e event) error {
	if a.json {
		return a.printf("%s\n", e.text)
	}
	_, err := fmt.Fprintf(out, "%s  %s  %s  %s%s\n", e.At.Local().Format("15:04:05.000"),
		tones[e.Type].Render(fmt.Sprintf("%-9s", line(e.Type, 20))), line(e.Job, 60),
		keyName(e.Key), e.details())
	return err
}

func (e *event) details() string {
	var b strings.Builder
	if e.Attempt > 1 {
		fmt.Fprintf(&b, "  attempt %d", e.Attempt)
	}
	switch e.Type {
	case "started":
		fmt.Fprintf(&b, "  waited %s", short(milliseconds(e.WaitMS)))
	case "done", "failed", "throttled":
		fmt.Fprintf(&b, "  took %s", short(milliseconds(e.DurationMS)))
	}
	if e.PauseMS > 0 {
		fmt.Fprintf(&b, "  pause %s", short(milliseconds(e.PauseMS)))
	}
	if e.Reason != "" {
		b.WriteString("  " + line(e.Reason, 40))
	}
	if e.All {
		b.WriteString("  all buckets")
	}
	if e.Progress != "" {
		b.WriteString("  " + line(e.Progress, 200))
	}
	if e.Error != "" {
		b.WriteString("  " + line(e.Error, 200))
	}
	return b.String()
}
