package policy

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// String returns the shortest text, such as "1m30s" or "2w".
func (d Duration) String() string { return algorithms.FormatDuration(time.Duration(d)) }

// MarshalText implements [encoding.TextMarshaler].
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
