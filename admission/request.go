package admission

import (
	"net/netip"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// MaxBody is the largest body of a job, in bytes: what fits into the embedded server's messages
// with room for headers.
const MaxBody = 1 << 20

// SubmitRequest asks to take a job.
type SubmitRequest struct {
	// Policy and Key name the bucket, the key in its subject form (see [job.EncodeKey]).
	Policy string
	Key    job.Key
	// Header holds the request's headers, in any case. What belongs to a stored job is kept, other
	// names are left behind; a Penstock-… header that means nothing is an error, because it is most
	// likely a misspelt one.
	Header map[string][]string
	// IP is the address of the client as the transport knows it; empty when it does not. The header
	// Penstock-IP goes before it.
	IP string
	// From is the client, for its share of the requests that wait.
	From Client
	// Wait is for how long [Service.Submit] waits for the job's end, at most [MaxWait]; 0: not.
	Wait time.Duration
	// Body is the job's payload, at most [MaxBody]. The service does not change it and does not
	// keep it.
	Body []byte

	single bool   // it is no job of a batch
	waiter string // the token of who waits for its end; empty: nobody
}

// CheckRequest asks whether a request may go ahead.
type CheckRequest struct {
	// Policy and Key name the bucket, the key in its subject form (see [job.EncodeKey]).
	Policy string
	Key    job.Key
	// Cost is how many units the request takes, at least 1.
	Cost int64
	// IP is the address of the client, for limits that count by it; empty when it is not known. See
	// [ClientIP].
	IP string
}

// ClientIP returns the address that limits count a client by: an IPv6 address by its /64 network,
// the least that one customer is given (RFC 6177), anything else as it is. Empty if there is no
// address in the text.
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
