package policy

import (
	"time"

	"github.com/penstock-mq/penstock/algorithms"
)

// String returns the shortest text that UnmarshalText reads, such as "1m30s" or "2w".
func (d Duration) String() string { return algorithms.FormatDuration(time.Duration(d)) }

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler] with [algorithms.ParseDuration]. Because it
// is the only way in, a bare JSON number is refused: nobody can tell whether 250 means seconds,
// milliseconds or nanoseconds.
func (d *Duration) UnmarshalText(text []byte) error {
	parsed, err := algorithms.ParseDuration(string(text))
	if err != nil {
		return err
	}
	*d = Duration(parsed)
	return nil
}
