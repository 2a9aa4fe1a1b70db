package admit

import (
	"net/netip"
	"time"

	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/queue"
)

// SubmitRequest submits a job.
type SubmitRequest struct {
	Policy string
	Key    queue.Key
	// Names are case-insensitive. An unknown Penstock-… header is an error.
	Header map[string][]string
	IP     string        // from the transport; Penstock-IP overrides it
	From   Client        // for shares of waiting requests
	Wait   time.Duration // for the job's end, at most [admission.MaxWait]
	Body   []byte        // not retained
	JSON   bool          // Body is known to be valid JSON

	single bool   // not part of a batch
	waiter string // token for the result of the job; empty without a wait
}

// CheckRequest asks a policy for a decision.
type CheckRequest struct {
	Policy string
	Key    queue.Key
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

// FillTime returns the time that n units take at a rate, at most 100 years.
func FillTime(n int64, r algorithms.Rate) time.Duration {
	const longest = 100 * 365 * 24 * time.Hour
	return time.Duration(min(float64(n)/r.PerSecond(), longest.Seconds()) * float64(time.Second))
}
