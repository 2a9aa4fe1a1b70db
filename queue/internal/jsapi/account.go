package jsapi

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	// otherStreams is the part of the store that each stream without a bound of its own gets in an
	// account that requires bounds: nine share an eighth, besides policies' and tables that evict.
	otherStreams = 72
	// assumedStore is for an account that requires bounds, and has none itself.
	assumedStore = 1 << 30
)

const apiPrefix = "$JS.API"

// API returns a subject below $JS.API in the connection's JetStream domain.
func (c *Conn) API(subject string) string {
	if c.domain == "" {
		return subject
	}
	return "$JS." + c.domain + ".API" + strings.TrimPrefix(subject, apiPrefix)
}

// KV returns the subject of writes to a KV bucket: leaf nodes pass $KV only below a domain's API.
func (c *Conn) KV(subject string) string {
	if c.domain == "" {
		return subject
	}
	return c.API(apiPrefix + "." + subject)
}

// Account returns the limits (0: unlimited) and use of the account's streams with a number of
// replicas, in bytes per replica.
func (c *Conn) Account(ctx context.Context, replicas int) (jetstream.Tier, error) {
	info, err := c.AccountInfo(ctx)
	if err != nil {
		return jetstream.Tier{}, Translate(err)
	}
	tier, found := info.Tiers["R"+strconv.Itoa(replicas)]
	if !found {
		tier = info.Tier
		tier.Limits.MaxStore /= int64(replicas)
		tier.Limits.MaxMemory /= int64(replicas)
		tier.Store /= uint64(replicas)
	}
	tier.Limits.MaxStore = max(0, tier.Limits.MaxStore)
	if tier.Limits.MaxStore == 0 && tier.Limits.MaxBytesRequired {
		tier.Limits.MaxStore = assumedStore
	}
	tier.Limits.StoreMaxStreamBytes = max(0, tier.Limits.StoreMaxStreamBytes)
	return tier, nil
}

// bounded calls do, again with a bound for the stream if the account requires one.
func (c *Conn) bounded(ctx context.Context, config jetstream.StreamConfig,
	do func(jetstream.StreamConfig) error) error {

	err := do(config)
	if !HasCode(err, codeMaxBytesRequired) {
		return err
	}
	account, failed := c.Account(ctx, max(1, config.Replicas))
	if failed != nil {
		return fmt.Errorf("%w; ask for the account's limits: %w", err, failed)
	}
	limits := account.Limits
	config.MaxBytes = limits.MaxStore / otherStreams
	most := limits.StoreMaxStreamBytes
	if config.Storage == jetstream.MemoryStorage {
		config.MaxBytes, most = max(0, limits.MaxMemory)/2, limits.MemoryMaxStreamBytes
	}
	config.MaxBytes = cmp.Or(config.MaxBytes, assumedStore/otherStreams)
	if most > 0 {
		config.MaxBytes = min(config.MaxBytes, most)
	}
	return do(config)
}
