package daemon

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/penstock-mq/penstock/internal/hosts"
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
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	known := hosts.Of(address, nil)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !known.Has(r.Host) {
				http.Error(w, "the host is none of this process's", http.StatusMisdirectedRequest)
				return
			}
			mux.ServeHTTP(w, r)
		})}
	go func() { _ = server.Serve(listener) }()
	return func() { _ = server.Close() }, nil
}
