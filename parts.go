package penstock

import (
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/health"
)

// parts returns the health of each part of the process. A part comes after the parts it depends
// on, so that the first error is the cause of later ones.
func (p *Penstock) parts() []health.Part {
	process := health.Part{Name: "process", Status: "running"}
	if p.stopping.Load() {
		process.Err = admission.ErrStopping
	}
	nats := health.Part{Name: "nats", Status: "connected"}
	if !p.Connected() {
		nats.Err = errors.New("not connected to NATS: checks are answered, jobs are not taken")
	}
	set := p.known.policies()
	policies := health.Part{Name: "policies",
		Status: fmt.Sprintf("%d are followed, with their streams", len(set)),
		Notes:  slices.Concat(p.streams.troubles(), p.policies.notes())}
	if !p.ready.isClosed() {
		policies.Err = fmt.Errorf("%w, or their streams not prepared", admission.ErrStarting)
	}
	parts := []health.Part{process, nats, policies,
		{Name: "storage", Err: p.storage.fit(), Status: "can be written",
			Notes: p.storage.notes()}}
	if p.drainer != nil {
		parts = append(parts, health.Part{Name: "drainer", Err: p.drainer.Health(),
			Status: "holds its lease", Notes: p.drainer.Notes()})
	}
	if p.options.shared {
		parts = append(parts, limitsPart(p.options.Limits))
	}
	if p.listener != nil {
		parts = append(parts, p.options.Files.Part())
	}
	return parts
}

// limitsPart returns the health of the store of limits. An unreachable store does not make the
// process unready: the policies define how to decide without it.
func limitsPart(l Limits) health.Part {
	part := health.Part{Name: "limits", Status: "the shared store is asked"}
	if store, ok := l.(interface{ Health() error }); ok {
		if err := store.Health(); err != nil {
			part.Status = err.Error()
		}
	}
	return part
}
