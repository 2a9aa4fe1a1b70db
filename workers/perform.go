package workers

// performer carries out what the core wants, in the loop: each part its own.
type performer struct {
	*backlogs  // Open, Close, Fetch, Ack
	*pool      // Start
	*remote    // Offer, Refuse, StartElsewhere
	*records   // Read, Write, Delete
	*journal   // Save, Forget, NoteDone, NoteEnd
	*letters   // Bury
	*questions // WorkOn, Report
	*teller    // Tell…
}
