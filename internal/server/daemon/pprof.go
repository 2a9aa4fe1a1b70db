package daemon

import (
	"fmt"
	"net"
	"net/http"
	_ "net/http/pprof" // serves in the default mux, which has no other server
	"time"

	"github.com/penstock-mq/penstock/internal/server/hosts"
)

// Profiles reveal memory, so other machines, and pages by DNS rebinding, must not reach them.
func profiles(address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	if !hosts.IsLoopback(address) {
		return nil, fmt.Errorf("--pprof %q: profiles expose memory; want an address that "+
			"only this machine can reach, such as 127.0.0.1:6060", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for --pprof: %w", err)
	}
	known := hosts.Of(address, nil)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !known.Has(r.Host) {
				http.Error(w, "the host is not permitted", http.StatusMisdirectedRequest)
				return
			}
			http.DefaultServeMux.ServeHTTP(w, r)
		})}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}
