package lifecycle

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

type tlsKey struct{}

// net/http only sees problemConn, so the TLS one is in the context. The first read
// performs the handshake, within the header timeout.
func withTLS(ctx context.Context, conn net.Conn) context.Context {
	p, _ := conn.(problemConn)
	if secure, ok := p.Conn.(*tls.Conn); ok {
		return context.WithValue(ctx, tlsKey{}, secure)
	}
	return ctx
}

// secured sets a request's TLS state, as net/http does.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(tlsKey{}).(*tls.Conn); ok {
			state := conn.ConnectionState()
			r.TLS = &state
		}
		next.ServeHTTP(w, r)
	})
}
