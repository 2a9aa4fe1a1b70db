// Package reach says which addresses targets may have. Whoever may write policies through the API
// could otherwise make a drainer ask what is open to the drainer's machine alone: its own services,
// and the metadata of its cloud.
package reach

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Rules are what the targets of one kind of policy must keep to.
type Rules struct {
	// Operator is whether the policies are from the operator's own file: those may name this
	// machine.
	Operator bool
	// Allow are networks that are allowed in any case.
	Allow []netip.Prefix
}

// metadata are services of clouds that give away credentials, and are not link-local: AWS over
// IPv6, Alibaba, Azure and Oracle.
var metadata = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"), netip.MustParseAddr("100.100.100.200"),
	netip.MustParseAddr("168.63.129.16"),
	netip.MustParseAddr("192.0.0.192"),
}

var (
	thisNetwork = netip.MustParsePrefix("0.0.0.0/8")
	translated  = netip.MustParsePrefix("64:ff9b::/96") // IPv4 addresses behind NAT64
)

// Check says why a target may not be at an address, nil when it may. Private networks are allowed:
// targets are there.
func (r Rules) Check(address netip.Addr) error {
	address = plain(address)
	if slices.ContainsFunc(r.Allow, func(p netip.Prefix) bool { return p.Contains(address) }) {
		return nil
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

// CheckHost is Check for the host of a URL, as far as it can be told without looking a name up.
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

// plain is the address that packets go to.
func plain(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if translated.Contains(address) {
		bytes := address.As16()
		return netip.AddrFrom4([4]byte(bytes[12:]))
	}
	return address
}

// isOwn reports whether an address is one of this machine's interfaces.
func isOwn(address netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return true // nothing can be said for it
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		network, err := netip.ParsePrefix(a.String())
		return err == nil && network.Addr().Unmap() == address
	})
}
