package zones_test

import (
	"os"
	"strings"
	"testing"
	_ "time/tzdata" // tests must not depend on installed zones

	"github.com/penstock-mq/penstock/internal/base/zones"
)

func TestZonesAreFoundByTheirNames(t *testing.T) {
	names, err := os.ReadFile("names.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if zone, err := zones.Load(name); err != nil || zone.String() != name {
			t.Errorf("%s: %v, %v", name, zone, err)
		}
	}
}

func TestAnUnknownZoneIsRefusedWithASuggestion(t *testing.T) {
	for name, want := range map[string]string{
		"Europe/Berln":  `"Europe/Berln" is not a time zone; did you mean Europe/Berlin?`,
		"europe/berlin": `"europe/berlin" is not a time zone; did you mean Europe/Berlin?`,
		"berlin":        `"berlin" is not a time zone; did you mean Europe/Berlin?`,
		"new york":      `"new york" is not a time zone; did you mean America/New_York?`,
		"Local":         `"Local" is not a time zone: want a name such as Europe/Berlin`,
		"":              `"" is not a time zone: want a name such as Europe/Berlin`,
		"../etc/passwd": `"../etc/passwd" is not a time zone: want a name such as Europe/Berlin`,
	} {
		if _, err := zones.Load(name); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
