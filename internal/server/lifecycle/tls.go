package lifecycle

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

type tlsKey struct{}

// hidden keeps a TLS connection from net/http, which logs each failed handshake, such as a probe's.
type hidden struct{ *tls.Conn }

// The first read performs the handshake, within the header timeout.
func withTLS(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(hidden); ok {
		return context.WithValue(ctx, tlsKey{}, secure.Conn)
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
