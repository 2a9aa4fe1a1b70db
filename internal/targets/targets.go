// Package targets runs the jobs of policies with a target, whatever kind it is.
package targets

import (
	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/httptarget"
	"github.com/penstock-mq/penstock/workers/natstarget"
)

// New returns the handler of a policy's target, nil for a policy without one. It is what [workers.Options.Target] wants.
func New(nc *nats.Conn) func(queue.PolicyEntry) (workers.Handler, error) {
	kinds := []func(queue.PolicyEntry) (workers.Handler, error){
		httptarget.New(httptarget.Client()),
		natstarget.New(nc),
	}
	return func(entry queue.PolicyEntry) (workers.Handler, error) {
		for _, kind := range kinds {
			if handle, err := kind(entry); handle != nil || err != nil {
				return handle, err
			}
		}
		return nil, nil
	}
}
