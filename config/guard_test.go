package config_test

import (
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/config"
)

func TestUnencryptedConnectionsAreWarnings(t *testing.T) {
	for text, warned := range map[string]string{
		"http: {listen: '0.0.0.0:1', tokens: f}":              "http.tokens without http.tls",
		"nats: {embedded: {listen: ':1', users: f}}":          "nats.embedded.users without ",
		"nats: {embedded: {listen: ':1', insecure: true}}":    "nats.embedded.insecure: ",
		"nats: {embedded: {listen: '127.0.0.1:1', users: f}}": "",
		"nats: {url: a, embedded: {listen: '0.0.0.0:1'}}":     "",
		"nats: {embedded: {listen: ':1', users: f, " +
			"tls: {cert: c, key: k}}}": "",
	} {
		c, err := config.Load(strings.NewReader(text), nil)
		got := strings.Join(c.Warnings, "")
		if err != nil || !strings.HasPrefix(got, warned) || warned == "" && got != "" {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}
