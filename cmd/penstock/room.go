package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/penstock-mq/penstock/api"
)

// room describes the bytes of a policy that is nearly full by them, and the policy that takes most
// of the store. It is empty for other policies, and for clients that may not read them.
func (a *app) room(ctx context.Context) (string, error) {
	var page api.Buckets
	_, err := a.get(ctx, path("buckets", a.policy)+"?limit=1", &page)
	if err != nil || page.Bytes.Max == 0 || page.Bytes.Used < page.Bytes.Max/5*4 {
		return "", unlessForbidden(err)
	}
	var all api.AllBuckets
	var p policyDocument
	if _, err = a.get(ctx, path("buckets")+"?limit=1", &all); err == nil {
		_, err = a.get(ctx, path("policies", a.policy), &p)
	}
	if err != nil {
		return "", unlessForbidden(err)
	}
	bound := "its share of the store"
	if own := int64(p.Policy.MaxBytes); own > 0 && own <= page.Bytes.Max {
		bound = "its max_bytes"
	}
	text := fmt.Sprintf("the jobs of %s take %s of %s, %s", a.policy, size(page.Bytes.Used),
		size(page.Bytes.Max), bound)
	if full(page.Bytes, all.Depths[a.policy]) {
		text += ", so new ones are refused"
	}
	most, largest := "", page.Bytes.Used
	for name, fill := range all.Bytes {
		if fill.Used > largest || fill.Used == largest && most > name {
			most, largest = name, fill.Used
		}
	}
	if most != "" && most != a.policy {
		text += fmt.Sprintf("; those of %s take most, %s", most, size(largest))
	}
	return text, nil
}

// full: one more job of average size has no room.
func full(f api.Fill, jobs uint64) bool {
	return jobs > 0 && f.Used+f.Used/int64(jobs) > f.Max
}

func size(bytes int64) string {
	for _, unit := range []struct {
		of   int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if bytes >= unit.of {
			return fmt.Sprintf("%.3g %s", float64(bytes)/float64(unit.of), unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}

func unlessForbidden(err error) error {
	if p, ok := errors.AsType[*problem](err); ok &&
		slices.Contains([]int{exitForbidden, exitNotFound, exitConflict}, statusOf(p.Status)) {
		return nil
	}
	return err
}
