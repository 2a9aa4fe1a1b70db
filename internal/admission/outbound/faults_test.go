package outbound

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
)

func TestFaultsOfRoutesAreNamed(t *testing.T) {
	llm := policy.Policy{Name: "llm", Rule: policy.Rule{Algorithm: policy.LeakingBucket},
		Limits: policy.Limits{{Name: "budget", Cost: "tokens"}, {Name: "calls"}}}
	door := policy.Policy{Name: "door", Rule: policy.Rule{Algorithm: policy.FixedWindow}}
	known := inforce.Entries{"llm": {Policy: llm}, "door": {Policy: door}}
	spent := policy.CostFromResponse{"tokens": {}, "dollars": {}}
	missing := filepath.Join(t.TempDir(), "ca.pem")
	_, unread := os.ReadFile(missing)
	for _, c := range []struct {
		route Route
		want  []string
	}{
		{Route{Policy: "llm", Tokens: "tokens"}, nil},
		{Route{Policy: "llm"}, nil},
		{Route{Policy: "lm"}, []string{
			`policy: requests get 502 until there is a policy "lm"; did you mean llm?`}},
		{Route{Policy: "another", Tokens: "tokens"}, []string{
			`policy: requests get 502 until there is a policy "another"`}},
		{Route{Policy: "door"}, []string{
			`policy: requests get 502, because policy "door" cannot pace calls: want a leaking ` +
				"bucket with a queue"}},
		{Route{Policy: "llm", Tokens: "Tokens", CostFromResponse: spent}, []string{
			`tokens: no limit of policy llm has the cost "Tokens", so it limits nothing; did you ` +
				"mean tokens?",
			`cost_from_response.dollars: no limit of policy llm has the cost "dollars", so it ` +
				"limits nothing"}},
		{Route{Policy: "llm", TLS: policy.ClientTLS{CA: missing}}, []string{
			"tls: requests get 502 until its files can be read: " + unread.Error()}},
	} {
		var got []string
		for _, f := range Faults([]Route{c.route}, known) {
			got = append(got, f.Field+": "+f.Reason)
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%+v:\n%q, want\n%q", c.route, got, c.want)
		}
	}
}
