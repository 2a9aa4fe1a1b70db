package lifecycle

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// tlsKey is the key of a context's TLS connection.
type tlsKey struct{}

// underTLS returns the TLS connection below one of problemListener's.
func underTLS(conn net.Conn) (*tls.Conn, bool) {
	if p, ok := conn.(problemConn); ok {
		conn = p.Conn
	}
	secure, ok := conn.(*tls.Conn)
	return secure, ok
}

// withTLS lets requests know their TLS connection. net/http sees only what problemListener makes of
// it, and has the handshake done by the first read, within the time of a header.
func withTLS(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := underTLS(conn); ok {
		return context.WithValue(ctx, tlsKey{}, secure)
	}
	return ctx
}

// secured fills in what is known of a request's connection, as net/http does.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, ok := r.Context().Value(tlsKey{}).(*tls.Conn); ok {
			state := conn.ConnectionState()
			r.TLS = &state
		}
		next.ServeHTTP(w, r)
	})
}
