// Package zones finds time zones by name.
//
// A program that may run without installed zones imports time/tzdata.
package zones

import (
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/internal/base/nearest"
)

// names of the IANA's zones, the former ones too: as of Go 1.26. Of others only their spelling is
// not known.
//
//go:embed names.txt
var names string

// Load accepts no machine's own zone, which differs between processes. The error for an unknown
// name suggests a similar one.
func Load(name string) (*time.Location, error) {
	likely := near(name)
	known := likely == name
	// some file systems ignore case
	misspelt := !known && strings.EqualFold(likely, name)
	if name != "" && name != "Local" && !misspelt {
		if zone, err := time.LoadLocation(name); err == nil {
			return zone, nil
		}
	}
	switch {
	case known && name != "":
		return nil, fmt.Errorf("%q: no time zones are installed: import time/tzdata", name)
	case likely != "":
		return nil, fmt.Errorf("%q is not a time zone; did you mean %s?", name, likely)
	}
	return nil, fmt.Errorf("%q is not a time zone: want a name such as Europe/Berlin", name)
}

func near(name string) string {
	all := strings.Fields(names)
	if found := nearest.To(name, all); found != "" {
		return found
	}
	place := strings.ReplaceAll(name, " ", "_")
	for _, known := range all {
		if i := strings.LastIndexByte(known, '/'); strings.EqualFold(known[i+1:], place) {
			return known
		}
	}
	return ""
}
