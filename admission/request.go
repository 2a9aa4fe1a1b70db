package admission

import (
	"net/netip"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// MaxBody leaves room for headers in a message of the embedded server.
const MaxBody = 1 << 20

// SubmitRequest submits a job.
type SubmitRequest struct {
	Policy string
	Key    job.Key
	// Names are case-insensitive. An unknown Penstock-… header is an error.
	Header map[string][]string
	IP     string        // from the transport; Penstock-IP overrides it
	From   Client        // for shares of waiting requests
	Wait   time.Duration // for the job's end, at most [MaxWait]
	Body   []byte        // not retained
	JSON   bool          // Body is known to be valid JSON

	single bool   // not part of a batch
	waiter string // token for the result of the job; empty without a wait
}

// CheckRequest asks a policy for a decision.
type CheckRequest struct {
	Policy string
	Key    job.Key
	Cost   int64  // at least 1
	IP     string // see [ClientIP]
}

// ClientIP returns an address as limits count it: of IPv6 the /64 network, the smallest that a
// customer gets (RFC 6177); "" for other text.
func ClientIP(address string) string {
	ip, err := netip.ParseAddr(address)
	switch {
	case err != nil:
		return ""
	case ip.Is4(): // which is written in one way only
		return address
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	network, err := ip.Prefix(64)
	if err != nil {
		return ""
	}
	return network.String()
}
