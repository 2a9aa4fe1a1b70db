package queue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Inventory is what is stored of policies.
type Inventory struct {
	OK, Retired int               // policies
	Unreadable  map[string]error  // records that cannot be read, by policy: nobody knows these policies
	Orphaned    map[string]Orphan // streams of policies that have no record: nobody starts their jobs
}

// Orphan is a policy's stream without the policy.
type Orphan struct {
	Stream     string
	Jobs       uint64
	Partitions string // of the policy that made it
}

// policyOfStream is what follows the prefix in the name of a policy's stream. Other streams' names are in upper case.
var policyOfStream = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// Inventory looks for records and streams besides the policies that the caller knows, as [Broker.WatchPolicies] tells
// them. What is made or deleted meanwhile may be missing.
func (b *Broker) Inventory(ctx context.Context, known PolicySet) (Inventory, error) {
	found, err := b.inventory(ctx, known)
	if err != nil {
		return Inventory{}, fmt.Errorf("look at what is stored of policies: %w", err)
	}
	return found, nil
}

func (b *Broker) inventory(ctx context.Context, known PolicySet) (Inventory, error) {
	found := Inventory{Unreadable: map[string]error{}, Orphaned: map[string]Orphan{}}
	for _, entry := range known {
		if entry.Retired {
			found.Retired++
		} else {
			found.OK++
		}
	}
	// The streams first: a policy's record is older than its stream.
	streams, err := b.policyStreams(ctx)
	if err != nil {
		return found, err
	}
	names, err := b.policies.keys(ctx, "*")
	if err != nil {
		return found, err
	}
	recorded := map[string]bool{}
	for _, name := range names {
		if _, ok := known[name]; ok {
			recorded[name] = true
			continue
		}
		r, err := b.policies.Read(ctx, name)
		if err == nil {
			recorded[name] = true
			_, err = readPolicy(r)
		}
		switch {
		case err == nil, errors.Is(err, ErrNotFound):
		case !recorded[name]:
			return found, err
		default:
			found.Unreadable[name] = err
		}
	}
	for _, name := range streams {
		if recorded[name] {
			continue
		}
		info, err := b.streamInfo(ctx, b.names.Stream(name), "")
		if hasCode(err, codeStreamNotFound) {
			continue
		}
		if err != nil {
			return found, translate(err)
		}
		if partitions, ours := info.Config.Metadata[metaPartitions]; ours {
			found.Orphaned[name] = Orphan{b.names.Stream(name), info.State.Msgs, partitions}
		}
	}
	return found, nil
}

// policyStreams names the policies that have a stream.
func (b *Broker) policyStreams(ctx context.Context) ([]string, error) {
	type request struct {
		Offset int `json:"offset"`
	}
	type response struct {
		Total   int      `json:"total"`
		Streams []string `json:"streams"`
	}
	var policies []string
	for offset := 0; ; {
		var page response
		if err := b.call(ctx, "$JS.API.STREAM.NAMES", request{offset}, &page); err != nil {
			return nil, translate(err)
		}
		for _, stream := range page.Streams {
			name, ours := strings.CutPrefix(stream, b.names.Stream(""))
			if ours && policyOfStream.MatchString(name) {
				policies = append(policies, name)
			}
		}
		if offset += len(page.Streams); len(page.Streams) == 0 || offset >= page.Total {
			return policies, nil
		}
	}
}
