package manage

import (
	"context"

	"github.com/penstock-mq/penstock/workers"
)

// Drainers tells of every drainer that has a lease: whether it is alive, what it owns, and how busy its workers are.
func (s *Service) Drainers(ctx context.Context) ([]workers.DrainerState, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	drainers, err := workers.Drainers(ctx, s.broker)
	return drainers, translate(err)
}
