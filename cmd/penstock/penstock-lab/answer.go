package main

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/penstock-mq/penstock/cmd/penstock/internal/cli"
	"github.com/penstock-mq/penstock/internal/base/answers"
	"github.com/penstock-mq/penstock/policy"
)

func (a lab) checkAnswer() *cobra.Command {
	var config, name, of, like string
	cmd := &cobra.Command{
		Use:   "check-answer FILE",
		Short: "Say what a target's answer would mean",
		Long: `Reads a recorded HTTP answer, as "curl -i" prints it, and says what it would mean for a job or a
call, by which rule, and for how long. The rules are those of a policy's target, and those of the API
that --url or --like names. A hyphen as FILE is standard input.`,
		Example: `  curl -i https://api.github.com/user | penstock-lab check-answer - --like github
  penstock-lab check-answer answer.txt --config penstock.yaml --policy github`,
		RunE: func(cmd *cobra.Command, args []string) error {
			target, err := answering(config, name)
			if err != nil {
				return cli.Misuse(err)
			}
			host, err := url.Parse(cmp.Or(of, target.URL))
			if err == nil && host.Host == "" {
				host, err = url.Parse("//" + of)
			}
			if err != nil {
				return cli.Misuse(fmt.Errorf("--url: %w", err))
			}
			like = cmp.Or(like, target.Like)
			policy.CheckAnswers(like, nil, func(field, format string, args ...any) {
				err = cli.Misuse(fmt.Errorf("--"+field+": "+format, args...))
			})
			if err != nil {
				return err
			}
			in, err := a.Open(cmd.Context(), args[0])
			if err != nil {
				return cli.Misuse(err)
			}
			defer in.Close()
			status, header, body, err := readAnswer(in)
			if err != nil {
				return cli.Misuse(fmt.Errorf("%s: %w", args[0], err))
			}
			rules := answers.For(target.Answers, like, host.Hostname())
			rules.Silent = !target.ReadsRateLimitHeaders()
			return a.judged(rules, rules.Judge(status, header, body, time.Now()), status)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&of, "url", "", "the `URL` that answered")
	flags.StringVar(&like, "like", "", "the `API` whose rules apply: "+
		strings.Join(policy.AnswerAPIs, ", "))
	flags.StringVar(&config, "config", "", "the `file` with the policies")
	flags.StringVar(&name, "policy", "", "the `policy` whose target answered")
	return cmd
}

func answering(config, name string) (target policy.HTTPTarget, err error) {
	if config == "" && name == "" {
		return target, nil
	}
	if config == "" || name == "" {
		return target, errors.New("--config and --policy require each other")
	}
	found, err := plays(config, []string{name})
	if err != nil {
		return target, err
	}
	if t := found[0].policy.Target; t != nil && t.HTTP != nil {
		return *t.HTTP, nil
	}
	return target, fmt.Errorf("%s: the policy %q has no HTTP target", config, name)
}

var statusLine = regexp.MustCompile(`^HTTP/\d(?:\.\d)? (\d{3})\b`)

const mostAnswer = 16 << 20

// readAnswer reads the last answer: those before it may be of a proxy, a 100 or redirects.
func readAnswer(from io.Reader) (status int, header http.Header, body []byte, err error) {
	body, err = io.ReadAll(io.LimitReader(from, mostAnswer))
	for err == nil {
		first, rest, _ := bytes.Cut(body, []byte("\n"))
		line := statusLine.FindSubmatch(first)
		if line == nil && header != nil {
			break
		}
		if line == nil {
			return 0, nil, nil, fmt.Errorf("want an answer that begins with HTTP/1.1 429 or the "+
				"like, as of curl -i, not with %.80q", first)
		}
		status, _ = strconv.Atoi(string(line[1]))
		in := bufio.NewReader(bytes.NewReader(rest))
		fields, failed := textproto.NewReader(in).ReadMIMEHeader()
		if failed != nil && failed != io.EOF {
			return 0, nil, nil, failed
		}
		header = http.Header(fields)
		body, err = io.ReadAll(in)
	}
	return status, header, body, err
}

func (a lab) judged(rules answers.Set, v answers.Verdict, status int) error {
	wait := "for the policy's backoff, as the answer names no time"
	if v.From != "" {
		wait = fmt.Sprintf("for %s, by %s", cli.Short(v.Wait), v.From)
	}
	var text string
	switch v.Means {
	case answers.Done:
		text = "the job is done"
	case answers.Permanent:
		text = "no attempt can succeed: the job becomes a dead letter"
	case answers.Throttled:
		text = "its bucket pauses " + wait + "; no attempt counts"
		if v.Doubtful {
			text += ", unless it happens again while other jobs of the bucket pass"
		}
	case answers.Retry:
		text = "the attempt failed; the next one waits " + wait
		if status >= http.StatusInternalServerError {
			text += "; it counts against the target"
		}
	}
	why := "by its status and headers: no rule applies"
	if v.Rule != "" {
		why = fmt.Sprintf("by the rule %s: %s", v.Rule, answers.Describe(*v.By))
	} else if api := rules.API(); api != "" {
		why += ", of " + api + " neither"
	}
	text, left := fmt.Sprintf("%s\n  %s", cli.Plain(text), cli.Plain(why)), v.Pause(status)
	if left > 0 && v.Means != answers.Throttled {
		text += "\n  the bucket pauses for " + cli.Short(left) +
			": the target takes no more until then"
	}
	return a.Document(struct {
		Means   answers.Means `json:"means"`
		WaitMS  int64         `json:"wait_ms"`
		From    string        `json:"wait_from,omitempty"`
		PauseMS int64         `json:"pause_ms"`
		Rule    string        `json:"rule,omitempty"`
	}{v.Means, v.Wait.Milliseconds(), v.From, left.Milliseconds(), v.Rule},
		"%s: %s\n", v.Means, text)
}
