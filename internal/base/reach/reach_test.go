package reach

import (
	"net"
	"net/netip"
	"testing"
)

func TestTargets(t *testing.T) {
	const api, file, none = 1, 2, 0 // least rights that permit the address
	for text, allowed := range map[string]int{
		"127.0.0.1": file, "127.255.0.9": file, "::1": file, "::ffff:127.0.0.1": file,
		"64:ff9b::7f00:1": file,
		"0.0.0.0":         file, "0.1.2.3": file, "::": file, "255.255.255.255": file,
		"224.0.1.1":       file,
		"ff05::1":         file,
		"169.254.169.254": none, "169.254.0.1": none, "::ffff:169.254.169.254": none,
		"64:ff9b::a9fe:a9fe": none, "64:ff9b:1::a9fe:a9fe": none,
		"64:ff9b:1:a9fe:a9:fe00::": none, "64:ff9b:1:a9:fe:a9fe::": none,
		"64:ff9b:1::a9:fea9:fe00:0": none, "64:ff9b:1::7f00:1": file,
		"2002:a9fe:a9fe::1": none, "2002:7f00:1::": file, "::169.254.169.254": none,
		"2001:0:a9fe:a9fe::":        none,
		"2001:0:808:808::5601:5601": none,
		"2001:0:808:808::f7f7:f7f7": api,
		"64:ff9b::808:808":          api,
		"64:ff9b:1::808:808":        api,
		"64:ff9b:1:808:8:800::":     api,
		"2002:808:808::1":           api,
		"64:ff9b::6464:64c8":        file,
		"fd00:ec2::23":              file,
		"fd20:ce::254":              file,
		"fd00:42::42":               file,
		"fe80::1":                   none, "fe80::1%eth0": none, "ff02::1": none, "224.0.0.1": none,
		"fd00:ec2::254": file, "100.100.100.200": file, "168.63.129.16": file, "192.0.0.192": file,
		"10.0.0.1": api, "192.168.255.255": api, "fd00::1": api, "8.8.8.8": api, "2001:db8::1": api,
		"100.64.0.1": api,
	} {
		address := netip.MustParseAddr(text)
		if err := (Rules{}).Check(address); (err == nil) != (allowed == api) {
			t.Errorf("%s of the API: %v", text, err)
		}
		if err := (Rules{Operator: true}).Check(address); (err == nil) != (allowed != none) {
			t.Errorf("%s of the file: %v", text, err)
		}
		everything := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"),
			netip.MustParsePrefix("::/0")}
		if err := (Rules{Allow: everything}).Check(address); err != nil {
			t.Errorf("%s allowed: %v", text, err)
		}
	}
}

func TestThisMachineIsNoTarget(t *testing.T) {
	own, err := net.InterfaceAddrs()
	if err != nil || len(own) == 0 {
		t.Fatalf("%v, %v", own, err)
	}
	for _, a := range own {
		address := netip.MustParsePrefix(a.String()).Addr()
		if err := (Rules{}).Check(address); err == nil {
			t.Errorf("%s is allowed", address)
		}
	}
}

func TestHosts(t *testing.T) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for host, refused := range map[string]bool{"localhost": true, "a.LOCALHOST.": true,
		"127.0.0.1": true, "::1": true,
		"example.com": false, "10.0.0.1": false, "127.0.0.1.example.com": false} {
		if err := (Rules{}).CheckHost(host); (err != nil) != refused {
			t.Errorf("%s: %v", host, err)
		}
		if err := (Rules{Allow: loopback}).CheckHost(host); (err != nil) != (host == "::1") {
			t.Errorf("%s with loopback allowed: %v", host, err)
		}
	}
}
