package admission

import "time"

func (s *Service) Patient() { s.expected.within = time.Minute }
