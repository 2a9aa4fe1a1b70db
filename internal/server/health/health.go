// Package health formats the health of a process's parts.
package health

import (
	"strings"

	"github.com/penstock-mq/penstock/api"
)

type Part struct {
	Name string // a word, such as nats
	// why the part makes the process unready
	Err error
	// without names of policies, keys or files
	Status string
	// for operators with the right to read everything
	Notes []string
}

// Err returns the first error; nil: ready.
func Err(parts []Part) error {
	for _, p := range parts {
		if p.Err != nil {
			return p.Err
		}
	}
	return nil
}

func Notes(parts []Part) []string {
	var notes []string
	for _, p := range parts {
		notes = append(notes, p.Notes...)
	}
	return notes
}

func Of(parts []Part, notes bool) api.Readiness {
	r := api.Readiness{Ready: Err(parts) == nil, Parts: make([]api.Part, len(parts))}
	for i, p := range parts {
		line := api.Part{Name: p.Name, OK: p.Err == nil, Status: p.Status}
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

// Lines marks working parts by [+], others by [-], and ends with the result.
func Lines(r api.Readiness) []string {
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
