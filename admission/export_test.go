package admission

import "time"

// Patient raises the timeout of questions to valves.
func (s *Service) Patient() { s.expected.within = time.Minute }
