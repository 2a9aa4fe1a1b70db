package node

import "testing"

func TestWithoutPasswords(t *testing.T) {
	const given = "nats://user:p@ss@a:4222, b:4222,tls://token@c:4443"
	const want = "nats://a:4222,nats://b:4222,tls://c:4443"
	if got := withoutPasswords(given); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
