// Package hosts checks the Host field against DNS rebinding: a page can point its own name at any
// address, and a browser then treats the service there as the page's site.
package hosts

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Known holds host names in addition to IP addresses, localhost and *.localhost: exact ones, or
// "*.example.com" for subdomains.
type Known []string

// Has ignores port and case. Browsers always send a Host field.
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

func Of(listen string, names []string) Known {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "" {
		return names
	}
	return append(slices.Clone(names), host)
}

// IsLoopback reports whether only this machine can reach an address.
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
