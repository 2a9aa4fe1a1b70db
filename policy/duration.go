package policy

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// String returns the shortest text for UnmarshalText, such as "1m30s" or "2w".
func (d Duration) String() string { return algorithms.FormatDuration(time.Duration(d)) }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [algorithms.ParseDuration]. A bare JSON
// number is rejected, because its unit would be ambiguous.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := algorithms.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}
