// Package health is what a process says of its parts: a line each, and whether it is ready. It
// decides nothing; what serves /readyz asks it how to say it.
package health

import "strings"

// Part is one part of a process.
type Part struct {
	Name string // a word, such as nats
	// Err is why the process is not ready because of this part; nil when it is no reason.
	Err error
	// Status says in a few words how the part is; it names no policies, keys or files.
	Status string
	// Notes are what an operator should know besides, for those who may read everything.
	Notes []string
}

// Err returns why the first part that says so keeps the process from being ready; nil: it is ready.
func Err(parts []Part) error {
	for _, p := range parts {
		if p.Err != nil {
			return p.Err
		}
	}
	return nil
}

// Notes returns those of all parts.
func Notes(parts []Part) []string {
	var notes []string
	for _, p := range parts {
		notes = append(notes, p.Notes...)
	}
	return notes
}

// Report is how a process is, as JSON has it.
type Report struct {
	Ready bool   `json:"ready"`
	Parts []Line `json:"parts"`
}

// Line is one part of a [Report].
type Line struct {
	Name   string   `json:"name"`
	OK     bool     `json:"ok"`
	Status string   `json:"status"`
	Notes  []string `json:"notes,omitempty"`
}

// Of reports on parts, with their notes for a reader who may know all.
func Of(parts []Part, notes bool) Report {
	r := Report{Ready: Err(parts) == nil, Parts: make([]Line, len(parts))}
	for i, p := range parts {
		line := Line{Name: p.Name, OK: p.Err == nil, Status: p.Status}
		switch {
		case p.Err != nil:
			line.Status = p.Err.Error()
		case p.Status == "":
			line.Status = "ok"
		}
		if notes {
			line.Notes = p.Notes
		}
		r.Parts[i] = line
	}
	return r
}

// Lines is the report for people: [+] before what is well, [-] before what is not, and at the end
// the sum of it.
func (r Report) Lines() []string {
	var lines []string
	for _, p := range r.Parts {
		sign := "[+] "
		if !p.OK {
			sign = "[-] "
		}
		for _, text := range append([]string{p.Status}, p.Notes...) {
			lines = append(lines, sign+p.Name+": "+strings.ReplaceAll(text, "\n", "; "))
			sign = "    "
		}
	}
	if r.Ready {
		return append(lines, "ready")
	}
	return append(lines, "not ready")
}
