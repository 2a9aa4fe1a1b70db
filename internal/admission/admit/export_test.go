package admit

import "time"

func (s *Service) Patient() { s.expected.within = time.Minute }
