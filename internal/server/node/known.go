package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/store"
	"github.com/penstock-mq/penstock/policy"
)

// wait for NATS before Run follows the last known policies
const knownAfter = time.Second

// keepAfter is how long the cache waits for more changes.
const keepAfter = time.Second

// known holds the policies from NATS or, until they arrive, the last known ones, for checks only.
type known struct {
	follow func(set inforce.Entries, changed []string)

	turn     sync.Mutex      // held while a set takes effect, to apply sets in order
	followed inforce.Entries // last given to follow

	mu      sync.Mutex
	set     inforce.Entries // nil until they arrive
	changed chan struct{}   // at the next change; nil without a waiter
}

// take follows a set.
func (k *known) take(set inforce.Entries) {
	k.turn.Lock()
	defer k.turn.Unlock()
	k.pass(set)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.set = set
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

func (k *known) pass(set inforce.Entries) {
	changed := inforce.Changed(k.followed, set)
	if k.followed = set; k.follow != nil {
		k.follow(set, changed)
	}
}

func (k *known) followInstead(others func() inforce.Entries) {
	k.turn.Lock()
	defer k.turn.Unlock()
	if k.policies() == nil {
		k.pass(others())
	}
}

func (k *known) policies() inforce.Entries {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set
}

func (k *known) queues() []policy.Policy {
	var policies []policy.Policy
	for _, entry := range k.policies() {
		if entry.HasQueue() && !entry.Draining {
			policies = append(policies, entry.Policy)
		}
	}
	return policies
}

// wait returns when this process follows at least this revision of a policy, or its deletion (0).
func (k *known) wait(ctx context.Context, policy string, revision uint64) {
	for {
		k.mu.Lock()
		if k.changed == nil {
			k.changed = make(chan struct{})
		}
		set, changed := k.set, k.changed
		k.mu.Unlock()
		if now := set[policy]; (now != nil) == (revision > 0) &&
			(now == nil || now.Revision >= revision) {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// cache keeps policies in a file, for a start without NATS.
type cache struct {
	file string // empty: no cache
	log  *slog.Logger
	kept []byte
}

// kept is the form of the file: a version, and records.
type kept[T any] struct {
	V        int `json:"v"`
	Policies []T `json:"policies"`
}

func (c *cache) lastKnown(configured []policy.Policy) inforce.Entries {
	set, err := c.read()
	if err != nil {
		c.log.Warn("policy cache unusable", "file", c.file, "error", err)
	}
	from := c.file
	if set == nil {
		set, from = inforce.Entries{}, "the configuration"
		for _, p := range configured {
			p = p.WithDefaults()
			set[p.Name] = &inforce.Entry{Policy: p, Written: p, Source: inforce.SourceFile}
		}
	}
	c.log.Warn(
		"policies not loaded from NATS yet: checks follow the last known ones, and jobs "+
			"are refused",
		"policies", len(set), "from", from)
	return set
}

// Revisions are zero: any from NATS is newer.
func (c *cache) read() (inforce.Entries, error) {
	text, err := os.ReadFile(c.file)
	if c.file == "" || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var found kept[json.RawMessage]
	if err == nil {
		err = json.Unmarshal(text, &found)
	}
	set := inforce.Entries{}
	for _, record := range found.Policies {
		var entry inforce.Entry
		if entry, err = store.Parse(record); err != nil {
			break
		}
		set[entry.Policy.Name] = &entry
	}
	if err != nil {
		return nil, err
	}
	return set, nil
}

func (c *cache) keep(set inforce.Entries) {
	if err := c.write(set); err != nil {
		c.log.Warn("policy cache not written", "file", c.file, "error", err)
	}
}

// cached matches the beginning of a cache. Damaged ones may be replaced, other files may not.
var cached = regexp.MustCompile(`^(\{\s*"v":|\s*$)`)

// A crash leaves the former file intact.
func (c *cache) write(set inforce.Entries) error {
	next := kept[*inforce.Entry]{V: job.FormatVersion}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		next.Policies = append(next.Policies, set[name])
	}
	text, err := json.MarshalIndent(next, "", " ")
	if err != nil {
		return err
	}
	if bytes.Equal(text, c.kept) {
		return nil
	}
	if former, err := os.ReadFile(c.file); c.kept == nil && err == nil && !cached.Match(former) {
		return errors.New("it is not a cache of policies: remove it, or change state.cache")
	}
	part, err := os.CreateTemp(filepath.Dir(c.file), filepath.Base(c.file)+".*")
	if err != nil {
		return err
	}
	_, err = part.Write(text)
	if err = errors.Join(err, part.Sync(), part.Close()); err == nil {
		err = os.Rename(part.Name(), c.file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(part.Name()))
	}
	c.kept = text
	return nil
}
