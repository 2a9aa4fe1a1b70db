package policy

import (
	"fmt"
	"time"

	"github.com/penstock-mq/penstock/internal/base/zones"
)

// maxQuiet bounds the spans of [Policy.Quiet].
const maxQuiet = 8

// Quiet is a span of each day, by the clocks of a zone, in which nothing starts. From and To are
// written 22:00. A span that ends before it begins ends on the next day.
type Quiet struct {
	From string `json:"from"`
	To   string `json:"to"`
	Zone string `json:"zone,omitempty"` // default UTC
}

// Clocks returns a span's times since midnight, and its zone.
func (q Quiet) Clocks() (from, to time.Duration, zone *time.Location, err error) {
	read := func(text string) (since time.Duration) {
		at, wrong := time.Parse("15:04", text)
		if wrong != nil || len(text) != len("15:04") {
			err = fmt.Errorf("%.80q: want a time of day such as 22:00", text)
		}
		return time.Duration(at.Hour())*time.Hour + time.Duration(at.Minute())*time.Minute
	}
	from, to, zone = read(q.From), read(q.To), time.UTC
	if err == nil && from == to {
		err = fmt.Errorf("from and to are both %s: pause the policy instead", q.From)
	}
	if err == nil && q.Zone != "" {
		zone, err = zones.Load(q.Zone)
	}
	return from, to, zone, err
}

func (p Policy) checkQuiet(c *checker) {
	if len(p.Quiet) > maxQuiet {
		c.add("quiet", "at most %d spans, not %d", maxQuiet, len(p.Quiet))
	}
	var all Duration
	for i, q := range p.Quiet {
		from, to, _, err := q.Clocks()
		if err != nil {
			c.add(fmt.Sprintf("quiet[%d]", i), "%v", err)
			return
		}
		all += (Duration(to-from) + day) % day
	}
	if all >= day {
		c.add("quiet", "the spans add up to %s a day, so no time to start is certain", all)
	}
}
