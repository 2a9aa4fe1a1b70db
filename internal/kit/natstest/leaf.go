package natstest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
)

// Serve starts a server with the text of a configuration file, which has no address.
func Serve(t testing.TB, text string) *server.Server {
	t.Helper()
	name := filepath.Join(t.TempDir(), "nats.conf")
	text = "listen: \"127.0.0.1:-1\"\n" + text
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(name)
	if err != nil {
		t.Fatal(err)
	}
	options.NoLog, options.NoSigs = true, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(Patience) {
		t.Fatal("the server is not ready")
	}
	return s
}

// HubAndLeaf starts two connected servers, whose JetStreams have the domains hub and leaf.
func HubAndLeaf(t testing.TB) (hub, leaf *server.Server) {
	t.Helper()
	hub = Serve(t, fmt.Sprintf("server_name: hub\njetstream {store_dir: %q, domain: hub}\n"+
		"leafnodes {listen: \"127.0.0.1:-1\"}\n", t.TempDir()))
	state, err := hub.Varz(&server.VarzOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leaf = Serve(t, fmt.Sprintf("server_name: leaf\njetstream {store_dir: %q, domain: leaf}\n"+
		"leafnodes {remotes: [{url: \"nats-leaf://127.0.0.1:%d\"}]}\n", t.TempDir(),
		state.LeafNode.Port))
	waittest.Until(t, "the leaf node is connected", func() bool {
		return leaf.NumLeafNodes() == 1 && hub.NumLeafNodes() == 1
	})
	return hub, leaf
}
