package health_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/internal/server/health"
)

func TestALineForEachPart(t *testing.T) {
	away := errors.New("not connected:\ntrying again")
	parts := []health.Part{
		{Name: "policies", Status: "3 are followed", Notes: []string{"mail: its change fails"}},
		{Name: "nats", Err: away, Status: "never said"},
		{Name: "drainer", Err: errors.New("no lease")},
		{Name: "storage"},
	}
	for notes, want := range map[bool]string{
		true: "[+] policies: 3 are followed\n    policies: mail: its change fails\n" +
			"[-] nats: not connected:; trying again\n[-] drainer: no lease\n[+] storage: ok\n" +
			"not ready",
		false: "[+] policies: 3 are followed\n[-] nats: not connected:; trying again\n" +
			"[-] drainer: no lease\n[+] storage: ok\nnot ready",
	} {
		if got := strings.Join(health.Lines(health.Of(parts, notes)), "\n"); got != want {
			t.Errorf("notes %v:\n%s\nwant\n%s", notes, got, want)
		}
	}
	if err := health.Err(parts); !errors.Is(err, away) {
		t.Errorf("the first reason is %v", err)
	}
	text, err := json.Marshal(health.Of(parts[3:], true))
	if want := `{"ready":true,"parts":[{"name":"storage","ok":true,"status":"ok"}]}`; err != nil ||
		string(text) != want {
		t.Errorf("%s %v, want %s", text, err, want)
	}
}
