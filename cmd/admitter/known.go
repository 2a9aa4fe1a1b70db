package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

// knownAfter is how long a start waits for NATS to tell the policies before it goes by the last ones that were known.
const knownAfter = time.Second

// known are the policies that a process goes by until NATS tells them: those that it last knew, from the file of
// state.cache, or else those of the configuration. Only checks can be answered then.
type known struct {
	file       string // empty: none is kept
	configured []policy.Policy
	obey       func(queue.PolicySet)
	log        *slog.Logger

	mu   sync.Mutex
	told bool   // NATS has told the policies
	kept []byte // what the file holds, as far as this process knows
}

// keptPolicies is the form of the file.
type keptPolicies struct {
	V        int          `json:"v"`
	Policies []keptPolicy `json:"policies"`
}

type keptPolicy struct {
	Policy  json.RawMessage `json:"policy"`
	Retired bool            `json:"retired,omitempty"`
	Paused  bool            `json:"paused,omitempty"`
	Source  string          `json:"source,omitempty"`
}

// keptVersion is the format of the file. One in another format counts as none.
const keptVersion = 1

// run is a part of the process.
func (k *known) run(ctx context.Context) error {
	select {
	case <-time.After(knownAfter):
		k.goBy()
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

// goBy lets the process go by what was known last, unless NATS was faster.
func (k *known) goBy() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.told {
		return
	}
	set, from, err := k.read()
	if err != nil {
		k.log.Warn("the cache of policies cannot be used", "file", k.file, "error", err)
	}
	if set == nil {
		set, from = queue.PolicySet{}, "the configuration"
		for _, p := range k.configured {
			set[p.Name] = queue.PolicyEntry{Policy: p, Source: queue.SourceFile}
		}
	}
	k.log.Warn("NATS has not told the policies yet: checks go by the last ones that are known, jobs are refused",
		"policies", len(set), "from", from)
	k.obey(set)
}

// read returns the policies in the file; none when there is no file. Their revisions are zero, less than any that NATS tells.
func (k *known) read() (set queue.PolicySet, from string, err error) {
	if k.file == "" {
		return nil, "", nil
	}
	text, err := os.ReadFile(k.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	var kept keptPolicies
	if err := json.Unmarshal(text, &kept); err != nil {
		return nil, "", err
	}
	if kept.V != keptVersion {
		return nil, "", fmt.Errorf("%w: format %d", queue.ErrVersion, kept.V)
	}
	set = queue.PolicySet{}
	for _, one := range kept.Policies {
		p, err := policy.Read(one.Policy)
		if err != nil {
			return nil, "", err
		}
		set[p.Name] = queue.PolicyEntry{Policy: p, Retired: one.Retired, Paused: one.Paused, Source: one.Source}
	}
	k.kept = text
	return set, k.file, nil
}

// set takes what NATS tells, lets the process go by it, and keeps it for the next start.
func (k *known) set(set queue.PolicySet) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = true
	k.obey(set)
	if k.file == "" {
		return
	}
	if err := k.keep(set); err != nil {
		k.log.Warn("the policies are not kept for a start without NATS", "file", k.file, "error", err)
	}
}

// keep writes the file when its content changes. A crash leaves the former one.
func (k *known) keep(set queue.PolicySet) error {
	kept := keptPolicies{V: keptVersion}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		entry := set[name]
		content, err := json.Marshal(entry.Policy)
		if err != nil {
			return fmt.Errorf("encode policy %s: %w", name, err)
		}
		kept.Policies = append(kept.Policies, keptPolicy{content, entry.Retired, entry.Paused, entry.Source})
	}
	text, err := json.MarshalIndent(kept, "", " ")
	if err != nil {
		return err
	}
	if bytes.Equal(text, k.kept) {
		return nil
	}
	next, err := os.CreateTemp(filepath.Dir(k.file), filepath.Base(k.file)+".*")
	if err != nil {
		return err
	}
	_, err = next.Write(text)
	if err = errors.Join(err, next.Sync(), next.Close()); err == nil {
		err = os.Rename(next.Name(), k.file)
	}
	if err != nil {
		return errors.Join(err, os.Remove(next.Name()))
	}
	k.kept = text
	return nil
}
