// Package hosts tells by its Host field whether a request was meant for this process. A page can
// make its own name lead to any address (DNS rebinding), and a browser then takes what is there for
// the page's own site: the name alone tells.
package hosts

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Known are the names that a process is known by besides its addresses, localhost and *.localhost:
// exact ones, or "*.example.com" for all names below example.com.
type Known []string

// Has reports whether a Host field names this process. Ports and the case of letters do not matter.
// A request without a Host field comes from no browser.
func (k Known) Has(field string) bool {
	host, _, err := net.SplitHostPort(field)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(field, "["), "]")
	}
	if _, err := netip.ParseAddr(host); err == nil || field == "" {
		return true
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return matches("localhost", host) || matches("*.localhost", host) ||
		slices.ContainsFunc(k, func(name string) bool {
			return matches(strings.ToLower(name), host)
		})
}

func matches(name, host string) bool {
	if below, found := strings.CutPrefix(name, "*"); found {
		return len(host) > len(below) && strings.HasSuffix(host, below)
	}
	return host == name
}

// Of are all names of a process that listens at an address, and that others know by these names as
// well.
func Of(listen string, names []string) Known {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "" {
		return names
	}
	return append(slices.Clone(names), host)
}

// IsLoopback reports whether only this machine can reach what listens at an address.
func IsLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(host)
	if err != nil {
		host = strings.ToLower(host)
		return matches("localhost", host) || matches("*.localhost", host)
	}
	return address.Unmap().IsLoopback()
}
