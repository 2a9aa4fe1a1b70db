package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/kit/proctest"
)

var nextAt = regexp.MustCompile(`,"next_at":"[^"]*"`)

func TestSchedulesOfTheFileAreFollowed(t *testing.T) {
	t.Parallel()
	const mail = "policies: [{name: mail, algorithm: leaking_bucket, outflow: 5/s, capacity: 50}]\n"
	const hourly = `{"policy":"mail","key":"acme","name":"hourly","when":"@every 1h",` +
		`"paused":false,"bytes":6,"set":"default"}`
	const list = "schedules:\n  - {policy: mail, key: acme, name: hourly, when: '@every 1h', " +
		"body: report}\n"
	file := configure(t, mail+list)
	if out, err := exec.Command(proctest.Program("admitter"), "validate",
		file).CombinedOutput(); err != nil ||
		string(out) != "the configuration is valid (policies: 1, schedules: 1)\n" {
		t.Errorf("%v, %s", err, out)
	}
	p := launch(t, "--config", file).ready()
	listed := func(want string) {
		t.Helper()
		eventually(t, "the schedules are "+want, func() bool {
			_, body := p.get("/v1/schedules/mail")
			listed, _, _ := strings.Cut(nextAt.ReplaceAllString(body, ""), `],"total":`)
			return listed == `{"schedules":[`+want
		})
	}
	listed(hourly)
	p.Kill()
	p = launch(t, "--config", file).ready()
	listed(hourly)

	rewrite(t, file, mail+list+"  - {policy: mail, when: daily}\n")
	p.logs(1, "schedules[1].when")
	listed(hourly)
	rewrite(t, file, mail+list+"  - {policy: mail, key: acme, when: '@daily'}\n")
	listed(`{"policy":"mail","key":"acme","name":"default","when":"@daily","paused":false,` +
		`"bytes":0,"set":"default"},` + hourly)
	rewrite(t, file, mail)
	p.logs(1, "schedules: [] ends them")
	rewrite(t, file, mail+"schedules: []\n")
	listed("")
	if status := p.terminate(); status != 0 ||
		strings.Count(p.Log.String(), "schedule written by the file") != 1 {
		t.Errorf("ended with status %d:\n%s", status, p.Log)
	}

	rewrite(t, file, mail+"schedules:\n  - {policy: mail, when: 0 0 30 2 *}\n")
	p = launch(t, "--config", file)
	if status := p.end(); status != 2 || !strings.Contains(p.Log.String(), "schedules[0].when") {
		t.Errorf("ended with status %d:\n%s", status, p.Log)
	}
}
