package targets_test

import (
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/server/targets"
	"github.com/penstock-mq/penstock/policy"
)

func TestEveryKindOfTargetHasAHandler(t *testing.T) {
	choose := targets.New(&nats.Conn{}, "penstock", nil)
	for name, test := range map[string]struct {
		target *policy.Target
		runs   bool
	}{
		"none": {nil, false},
		"http": {&policy.Target{HTTP: &policy.HTTPTarget{URL: "http://a"}}, true},
		"nats": {&policy.Target{NATS: &policy.NATSTarget{Subject: "a"}}, true},
	} {
		handle, err := choose(inforce.Entry{Policy: policy.Policy{Name: name, Target: test.target}})
		if err != nil || (handle != nil) != test.runs {
			t.Errorf("%s: a handler: %v, %v", name, handle != nil, err)
		}
	}
	if _, err := choose(
		inforce.Entry{
			Policy: policy.Policy{
				Target: &policy.Target{HTTP: &policy.HTTPTarget{URL: ":"}}}}); err == nil {
		t.Error("a URL that is none is accepted")
	}
}
