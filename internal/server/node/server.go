package node

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/server/natsconn"
	"github.com/penstock-mq/penstock/queue/embedded"
)

type Server struct {
	Inside *embedded.Server
	url    string
	login  []nats.Option
	watch  *natsconn.Watch
	later  bool
}

// OpenServer starts the embedded server, or prepares connections to url. later: NATS may be away at
// first.
func OpenServer(url string, login natsconn.Credentials, inside embedded.Options, later bool,
	log *slog.Logger) (*Server, error) {
	s := &Server{url: url, watch: natsconn.NewWatch(log), later: later}
	var err error
	if url != "" {
		s.login, err = login.Options()
		return s, err
	}
	if inside.Dir == "" {
		log.Warn("jobs are kept in a temporary directory and lost when this process " +
			"ends: set Server.Dir")
	}
	s.Inside, err = embedded.Start(inside)
	return s, err
}

func (s *Server) Connect(name string) (*nats.Conn, error) {
	options := append(s.watch.Options(name), nats.RetryOnFailedConnect(s.later))
	if s.Inside != nil {
		return s.Inside.Connect(options...)
	}
	nc, err := nats.Connect(s.url, append(options, s.login...)...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS at %s: %w", s.URL(), err)
	}
	return nc, nil
}

func (s *Server) URL() string {
	if s.Inside != nil {
		return s.Inside.URL()
	}
	return withoutPasswords(s.url)
}

func (s *Server) Check() func() error {
	if s.Inside == nil {
		return nil
	}
	return s.Inside.Check
}

func (s *Server) Close() {
	if s.Inside != nil {
		s.Inside.Shutdown()
	}
}

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
