package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const refused = "HTTP/2 403 \r\nx-ratelimit-remaining: 17\r\n\r\n" +
	`{"message": "You have exceeded a secondary rate limit."}`

func TestWhatAnAnswerWouldMean(t *testing.T) {
	i := program(t)
	file := written(t, "answer.txt", refused)
	const by = "by its status and headers: no rule applies"
	for args, want := range map[string]string{
		"--url https://api.github.com/user": "throttled: its bucket pauses for 1m0s, by the " +
			"rule's default; no attempt counts, unless it happens again while other jobs of the " +
			"bucket pass\n" +
			"  by the rule github[0]: status 403 or 429, and its JSON at message is " +
			"*secondary rate limit* or *abuse detection*\n",
		"--url api.github.com": "throttled: ",
		"--like stripe": "permanent: no attempt can succeed: the job becomes a dead letter\n" +
			"  " + by + ", of stripe neither\n",
		"": "permanent: no attempt can succeed: the job becomes a dead letter\n" +
			"  " + by + "\n",
	} {
		out := i.Run(0, append([]string{"check-answer", file}, strings.Fields(args)...)...)
		if !strings.HasPrefix(out, want) {
			t.Errorf("%s:\n%swant\n%s", args, out, want)
		}
	}
	for answer, want := range map[string]string{
		// A proxy, and a redirect.
		"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 302 Found\nLocation: /\n\n" +
			"HTTP/1.1 429 Too Many Requests\nRetry-After: 7\n": "throttled: its bucket " +
			"pauses for 7s, by Retry-After; no attempt counts\n",
		"HTTP/1.1 200 OK\nRateLimit: \"a\";r=0;t=9\n\n{}": "done: the job is done\n  " + by +
			"\n  the bucket pauses for 9s: the target takes no more until then\n",
		"HTTP/1.1 500 x\n\n": "retry: the attempt failed; the next one waits for the policy's " +
			"backoff, as the answer names no time; it counts against the target\n",
	} {
		r := i.Feed(answer, "check-answer", "-")
		if r.Status != 0 || !strings.HasPrefix(r.Out, want) {
			t.Errorf("%q:\n%s%swant\n%s", answer, r.Out, r.Err, want)
		}
	}
	var said map[string]any
	out := i.Run(0, "check-answer", file, "--like", "github", "--json")
	if err := json.Unmarshal([]byte(out), &said); err != nil || said["means"] != "throttled" ||
		said["wait_ms"] != 60000. || said["rule"] != "github[0]" {
		t.Errorf("%s: %v", out, err)
	}
}

func TestAnAnswerIsCheckedByAPolicysRules(t *testing.T) {
	i := program(t)
	file := written(t, "answer.txt", refused)
	config := written(t, "penstock.yaml", `policies:
  - name: hub
    algorithm: leaking_bucket
    outflow: 1/s
    capacity: 10
    target:
      http:
        url: http://gateway.example.com
        like: github
        answers:
          - {status: [403], json: message, values: ["*secondary*"], means: throttled, wait: {default: 5m}}
  - {name: bare, algorithm: leaking_bucket, outflow: 1/s, capacity: 10}
`)
	i.Says(0, []string{"check-answer", file, "--config", config, "--policy", "hub"}, "throttled: ",
		"for 5m0s, by the rule's default", "by the rule answers[0]: status 403, and its JSON at ")
	for args, want := range map[string]string{
		"--policy hub": "require each other", "--config " + config: "require each other",
		"--config " + config + " --policy huh":  `no policy "huh"; did you mean hub?`,
		"--config " + config + " --policy bare": `the policy "bare" has no HTTP target`,
		"--like githob":                         "--like: \"githob\": want airtable, ",
		"--url http://[":                        "--url: ",
	} {
		i.Says(2, append([]string{"check-answer", file}, strings.Fields(args)...), want)
	}
	i.Says(2, []string{"check-answer", written(t, "b", "hello\n")}, "want an answer that begins")
	i.Says(2, []string{"check-answer", written(t, "b", "HTTP/1.1 200 OK\n: x\n\n")}, "malformed")
	i.Says(2, []string{"check-answer", file + "x"}, "no such file")
}
