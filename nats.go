package penstock

import (
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/natsconn"
	"github.com/penstock-mq/penstock/queue/embedded"
)

// natsServer is the process's NATS: an embedded server or a remote one.
type natsServer struct {
	inside *embedded.Server // nil: remote
	url    string
	login  []nats.Option
	watch  *natsconn.Watch
	later  bool // NATS may be away at first
}

// openNATS starts the embedded server, or prepares connections to o.URL.
func openNATS(o Options) (*natsServer, error) {
	s := &natsServer{url: o.URL, watch: natsconn.NewWatch(o.Logger), later: o.StartWithoutNATS}
	var err error
	if o.URL != "" {
		s.login, err = natsconn.Credentials(o.Credentials).Options()
		return s, err
	}
	if o.Server.Dir == "" {
		o.Logger.Warn("jobs are kept in a temporary directory and are gone when this process " +
			"ends: name one in Server.Dir")
	}
	s.inside, err = embedded.Start(o.Server)
	return s, err
}

func (s *natsServer) connect(name string) (*nats.Conn, error) {
	options := append(s.watch.Options(name), nats.RetryOnFailedConnect(s.later))
	if s.inside != nil {
		return s.inside.Connect(options...)
	}
	nc, err := nats.Connect(s.url, append(options, s.login...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", s.shown(), err)
	}
	return nc, nil
}

// shown returns the URL without passwords; empty for an embedded server without a port.
func (s *natsServer) shown() string {
	if s.inside != nil {
		return s.inside.URL()
	}
	return withoutPasswords(s.url)
}

func (s *natsServer) close() {
	if s.inside != nil {
		s.inside.Shutdown()
	}
}

// withoutPasswords removes users and passwords from a list of server URLs.
func withoutPasswords(servers string) string {
	var shown []string
	for server := range strings.SplitSeq(servers, ",") {
		server = strings.TrimSpace(server)
		scheme, rest, found := strings.Cut(server, "://")
		if !found {
			scheme, rest = "nats", server
		}
		shown = append(shown, scheme+"://"+rest[strings.LastIndex(rest, "@")+1:])
	}
	return strings.Join(shown, ",")
}
