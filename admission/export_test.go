package admission

import "time"

// Patient gives valves more time to answer than a job's answer may wait for them.
func (s *Service) Patient() { s.expected.within = time.Minute }
