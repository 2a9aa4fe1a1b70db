package policy

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

func (d Duration) String() string { return algorithms.FormatDuration(time.Duration(d)) }

func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler]. It refuses numbers without a unit.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := algorithms.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}
