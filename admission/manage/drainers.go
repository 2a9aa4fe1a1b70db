package manage

import (
	"context"

	"github.com/penstock-mq/penstock/workers"
)

// Drainers lists the drainers with a lease: their health, partitions and load.
func (s *Service) Drainers(ctx context.Context) ([]workers.DrainerState, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	drainers, err := workers.Drainers(ctx, s.broker)
	return drainers, translate(err)
}
