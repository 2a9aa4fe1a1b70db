package admission

import (
	"net/netip"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// MaxBody leaves room for headers in a message of the embedded server.
const MaxBody = 1 << 20

// SubmitRequest asks to accept a job.
type SubmitRequest struct {
	// Policy and Key select the bucket; the key is in its subject form (see [job.EncodeKey]).
	Policy string
	Key    job.Key
	// Header names are case-insensitive. Headers of a stored job are kept, others ignored; an
	// unknown Penstock-… header is an error.
	Header map[string][]string
	// IP is the client's address as the transport knows it; Penstock-IP overrides it.
	IP string
	// From shares the waiting requests among clients.
	From Client
	// Wait is how long [Service.Submit] waits for the job to end, at most [MaxWait].
	Wait time.Duration
	// Body is neither changed nor kept.
	Body []byte

	single bool   // not part of a batch
	waiter string // token for the result of the job; empty without a wait
}

// CheckRequest asks whether a request may proceed.
type CheckRequest struct {
	Policy string
	Key    job.Key
	// Cost is at least 1.
	Cost int64
	// IP is for limits by address; see [ClientIP].
	IP string
}

// ClientIP returns the form of an address that limits count: for IPv6 its /64 network, the smallest
// assignment to a customer (RFC 6177); "" for other text.
func ClientIP(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return ""
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
