package admission

import (
	"net/netip"
	"time"

	"github.com/penstock-mq/penstock/queue/job"
)

// MaxBody is the maximum size of a job's body, in bytes. It fits into a message of the embedded
// server with room for headers.
const MaxBody = 1 << 20

// SubmitRequest asks to accept a job.
type SubmitRequest struct {
	// Policy and Key select the bucket, with the key in its subject form (see [job.EncodeKey]).
	Policy string
	Key    job.Key
	// Header holds the request's headers; names are case-insensitive. Headers of a stored job
	// are kept, others ignored. An unknown Penstock-… header is an error, because it is probably
	// misspelt.
	Header map[string][]string
	// IP is the client's address as the transport knows it; may be empty. The header Penstock-IP
	// overrides it.
	IP string
	// From is the client, for its share of the waiting requests.
	From Client
	// Wait is how long [Service.Submit] waits for the job to end, at most [MaxWait]; 0: no
	// waiting.
	Wait time.Duration
	// Body is the job's payload, at most [MaxBody]. The service neither changes nor keeps it.
	Body []byte

	single bool   // not part of a batch
	waiter string // token for the result of the job; empty without a wait
}

// CheckRequest asks whether a request may proceed.
type CheckRequest struct {
	// Policy and Key select the bucket, with the key in its subject form (see [job.EncodeKey]).
	Policy string
	Key    job.Key
	// Cost is the number of units that the request takes, at least 1.
	Cost int64
	// IP is the client's address, for limits by address; may be empty. See [ClientIP].
	IP string
}

// ClientIP returns the form of an address by which limits count: for IPv6 its /64 network, the
// smallest assignment to a customer (RFC 6177), otherwise the address itself. It returns an
// empty string for text that is not an address.
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
