package manage

import (
	"context"

	"github.com/penstock-mq/penstock/workers"
)

// Drainers lists the drainers that have a lease.
func (s *Service) Drainers(ctx context.Context) ([]workers.DrainerState, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	set, err := s.policies.Policies(ctx)
	if err != nil {
		return nil, change(err)
	}
	drainers, err := workers.Drainers(ctx, s.broker, set)
	return drainers, translate(err)
}
