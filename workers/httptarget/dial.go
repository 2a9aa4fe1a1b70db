package httptarget

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/penstock-mq/penstock/internal/base/oneshot"
	"github.com/penstock-mq/penstock/internal/base/reach"
)

var errOutOfReach = errors.New("the target's address is not allowed")

func dialer() *net.Dialer {
	return &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}
}

// guarded is [Client] for permitted addresses and the proxies of proxyOf.
func guarded(rules reach.Rules, proxyOf func(*http.Request) (*url.URL, error)) *http.Client {
	free, checked := dialer(), dialer()
	checked.Control = func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err == nil {
			err = rules.Check(to.Addr())
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errOutOfReach, err)
		}
		return nil
	}
	var proxies sync.Map // "host:port"; the environment names two at most
	client := Client()
	transport := client.Transport.(*http.Transport)
	transport.Proxy = func(r *http.Request) (*url.URL, error) {
		proxy, err := proxyOf(r)
		if proxy != nil {
			usual := map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}
			port := cmp.Or(proxy.Port(), usual[proxy.Scheme], "80")
			proxies.Store(net.JoinHostPort(proxy.Hostname(), port), nil)
		}
		return proxy, err
	}
	transport.DialContext = oneshot.Dial(func(ctx context.Context, network, address string) (
		net.Conn, error) {

		if _, proxy := proxies.Load(address); proxy {
			return free.DialContext(ctx, network, address)
		}
		return checked.DialContext(ctx, network, address)
	})
	return client
}
