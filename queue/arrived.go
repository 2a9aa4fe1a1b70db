package queue

import (
	"strconv"

	"github.com/penstock-mq/penstock/queue/internal/jsapi"
	"github.com/penstock-mq/penstock/queue/job"
)

// headerNATSStatus marks a server's status message, which a client must not see in a job.
const headerNATSStatus = "Status"

// headerSize is the size of a body that the server left out.
const headerSize = "Nats-Msg-Size"

func isBare(m jsapi.Message) bool {
	return len(m.Data) == 0 && jsapi.ServerSays(m.Header, headerSize) != ""
}

func (b *Broker) arrived(m jsapi.Message, lean bool) job.Arrived {
	a := job.Arrived{Seq: m.Seq, Stored: m.Time, Lean: lean, Size: len(m.Data)}
	a.Partition, a.Key, a.Malformed = b.names.ParseQueue(m.Subject)
	if m.Unreadable && a.Malformed == nil {
		a.Malformed = jsapi.ErrHeaderUnreadable
	}
	if lean {
		if size := jsapi.ServerSays(m.Header, headerSize); size != "" {
			a.Size, _ = strconv.Atoi(size)
			delete(m.Header, headerSize)
		}
	} else {
		a.Body = m.Data
	}
	delete(m.Header, headerNATSStatus)
	if len(m.Header) == 0 {
		m.Header = nil
	}
	a.ReadHeader(m.Header)
	return a
}
