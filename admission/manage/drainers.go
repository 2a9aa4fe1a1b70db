package manage

import (
	"context"

	"github.com/penstock-mq/penstock/workers"
)

// Drainers lists the drainers that have a lease.
func (s *Service) Drainers(ctx context.Context) ([]workers.DrainerState, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	drainers, err := workers.Drainers(ctx, s.broker)
	return drainers, translate(err)
}
