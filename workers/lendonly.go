package workers

import (
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/policy/store"
	"github.com/penstock-mq/penstock/workers/internal/pace"
)

// lend is the loop of a process with WorkerOnly. It has no core, so a turn is one event.
func (d *Drainer) lend() error {
	if err := d.lender.listen(); err != nil {
		return err
	}
	defer d.lender.unsubscribe(d.lender.sub)
	defer d.lender.close()
	d.watchConnection()
	d.spawn(func() {
		d.forever(d.life, "watch policies", func() error {
			return store.New(d.broker, d.log).Watch(d.life, func(set policy.Entries) {
				d.post(func(pace.Instant) { d.lendTo(set) })
			})
		})
	})
	d.every(noticeEvery, d.lender.look)
	for !d.lender.closing || !d.lender.idle() {
		if _, err := d.receive(); err != nil {
			return err
		}
	}
	return nil
}

func (d *Drainer) lendTo(set policy.Entries) {
	d.catalog.learn(set, time.Now())
	d.noteHandlers(d.catalog.handlers, set)
	d.lender.serve(d.catalog.running)
	if !d.ready {
		d.ready = true
		d.spawn(d.flushed)
	}
}

// flushed calls Ready once the server has the subscriptions.
func (d *Drainer) flushed() {
	if d.retry(d.life, "subscribe to offers", func() error {
		return d.broker.Conn().FlushTimeout(time.Second)
	}) {
		d.options.Ready()
	}
}
