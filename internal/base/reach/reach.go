// Package reach restricts the addresses of targets: clients that may write policies must not reach
// services of the drainer's machine, or its cloud's metadata service.
package reach

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

type Rules struct {
	// from the operator's file, may name this machine
	Operator bool
	Allow    []netip.Prefix
}

// services with credentials that are not link-local
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS, instances
	netip.MustParseAddr("fd00:ec2::23"),    // AWS, pods of EKS
	netip.MustParseAddr("fd20:ce::254"),    // Google
	netip.MustParseAddr("fd00:42::42"),     // Scaleway
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("192.0.0.192"),     // Oracle
}

var thisNetwork = netip.MustParsePrefix("0.0.0.0/8")

// IPv6 networks with embedded IPv4 addresses, and the positions of their bytes
var carriers = []carrier{
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}, false}, // NAT64, RFC 6052
	// NAT64 with a local prefix (RFC 8215), in all lengths of RFC 6052
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}, false},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}, false},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}, false},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}, false},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}, false},    // 6to4, RFC 3056
	{netip.MustParsePrefix("2001::/32"), [4]int{4, 5, 6, 7}, false},    // Teredo's server, RFC 4380
	{netip.MustParsePrefix("2001::/32"), [4]int{12, 13, 14, 15}, true}, // Teredo's client
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}, false},    // IPv4-compatible, RFC 4291
}

type carrier struct {
	netip.Prefix
	at      [4]int
	flipped bool
}

func (c carrier) carried(address netip.Addr) netip.Addr {
	from, v4 := address.As16(), [4]byte{}
	for i, at := range c.at {
		if v4[i] = from[at]; c.flipped {
			v4[i] = ^v4[i]
		}
	}
	return netip.AddrFrom4(v4)
}

// Check returns why a target may not be at an address. Private networks are permitted, since
// targets are there.
func (r Rules) Check(address netip.Addr) error {
	address = address.Unmap().WithZone("")
	if r.allows(address) {
		return nil
	}
	for _, c := range carriers {
		// Assuming a wrong length of the prefix mostly yields 0.0.0.0/8, which is unused.
		if v4 := c.carried(address); c.Contains(address) && !thisNetwork.Contains(v4) {
			if err := r.Check(v4); err != nil {
				return fmt.Errorf("%s leads there: %w", address, err)
			}
		}
	}
	kind := ""
	switch {
	case address.IsLinkLocalUnicast(), address.IsLinkLocalMulticast():
		kind = "link-local"
	case r.Operator:
	case address.IsLoopback(), address.IsUnspecified(), thisNetwork.Contains(address),
		isOwn(address):
		kind = "this machine's own"
	case address.IsMulticast(), address == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		kind = "a multicast address"
	case slices.Contains(metadata, address):
		kind = "a cloud's metadata service"
	}
	if kind == "" {
		return nil
	}
	return fmt.Errorf("%s is %s; add it to targets.allow to permit it", address, kind)
}

func (r Rules) allows(address netip.Addr) bool {
	return slices.ContainsFunc(r.Allow, func(p netip.Prefix) bool { return p.Contains(address) })
}

// CheckHost looks up no names.
func (r Rules) CheckHost(host string) error {
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		if r.Check(netip.IPv6Loopback()) == nil {
			return nil
		}
		return r.Check(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	}
	address, err := netip.ParseAddr(name)
	if err != nil {
		return nil
	}
	return r.Check(address)
}

func isOwn(address netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		network, err := netip.ParsePrefix(a.String())
		return err == nil && network.Addr().Unmap() == address
	})
}
