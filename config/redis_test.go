package config_test

import (
	"testing"

	"github.com/penstock-mq/penstock/algorithms/redisstore"
	"github.com/penstock-mq/penstock/config"
)

// The configuration does not import the store.
func TestTheDefaultsOfRedis(t *testing.T) {
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
