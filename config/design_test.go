package config_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/algorithms/redisstore"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/policy"
)

// TestTheDesignShowsTheDefaults: the file in DESIGN.md can be read, and says the defaults, but for
// what an example needs.
func TestTheDesignShowsTheDefaults(t *testing.T) {
	page, err := os.ReadFile("../DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "## 5. Configuration\n\n```yaml\n")
	text, _, found := strings.Cut(text, "\n```\n")
	if !found {
		t.Fatal("DESIGN.md shows no configuration")
	}
	shown, err := config.Load(strings.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	want, err := config.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want.HTTP.Listen = config.AdmitterListen
	want.NATS.Embedded.MaxStore = shown.NATS.Embedded.MaxStore
	if changed := config.Changed(want, shown); len(changed) > 0 {
		t.Errorf("these are not the defaults: %v", changed)
	}

	stripe := shown.Policies[0].WithDefaults()
	bare := stripe
	bare.Burst, bare.Workers, bare.Partitions, bare.Timeout, bare.DuplicateWindow = 0, 0, 0, 0, 0
	bare.Retry = policy.Retry{}
	if bare = bare.WithDefaults(); !reflect.DeepEqual(bare, stripe) {
		t.Errorf("policy %s does not show the defaults, which are %+v", stripe.Name, bare)
	}
}

// TestTheDefaultsOfRedisAreThoseOfItsStore: the configuration knows nothing of the store.
func TestTheDefaultsOfRedisAreThoseOfItsStore(t *testing.T) {
	c, err := config.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r := c.State.Redis; r.Prefix != redisstore.DefaultPrefix ||
		r.Timeout != redisstore.DefaultTimeout {
		t.Errorf("prefix %q and time-out %s; the store has %q and %s", r.Prefix, r.Timeout,
			redisstore.DefaultPrefix, redisstore.DefaultTimeout)
	}
}
