package envoy

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/internal/base/nearest"
	"github.com/penstock-mq/penstock/internal/base/strict"
)

// Load reads files, and .yaml and .yml in directories. Files of a domain are merged. The error
// lists all problems with file and line.
func Load(names []string) (*Config, error) {
	files, err := expand(names)
	if err != nil {
		return nil, err
	}
	p := parser{config: &Config{domains: map[string]*node{}}, paths: map[string]bool{}}
	var problems []error
	for _, name := range files {
		problems = append(problems, p.file(name))
	}
	return p.config, errors.Join(problems...)
}

// Kubernetes keeps former versions under names that begin with a dot.
func expand(names []string) (files []string, err error) {
	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, name)
			continue
		}
		entries, err := os.ReadDir(name)
		if err != nil {
			return nil, err
		}
		entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
			end := filepath.Ext(e.Name())
			return e.Name()[0] == '.' || end != ".yaml" && end != ".yml"
		})
		if len(entries) == 0 {
			return nil, fmt.Errorf("%s has no file that ends with .yaml or .yml", name)
		}
		for _, e := range entries {
			files = append(files, filepath.Join(name, e.Name()))
		}
	}
	return files, nil
}

// scalar is a scalar as written: 007 is not 7.
type scalar string

func (s *scalar) UnmarshalText(text []byte) error {
	*s = scalar(text)
	return nil
}

type descriptor struct {
	Key            scalar       `json:"key"`
	Value          scalar       `json:"value"`
	Descriptors    []descriptor `json:"descriptors"`
	RateLimit      *limit       `json:"rate_limit"`
	ShadowMode     bool         `json:"shadow_mode"`
	QuotaMode      bool         `json:"quota_mode"`
	ShareThreshold bool         `json:"share_threshold"`
	DetailedMetric bool         `json:"detailed_metric"`
	ValueToMetric  bool         `json:"value_to_metric"`
	// Metadata is for dynamic metadata, which answers do not have.
	Metadata map[string]any `json:"metadata"`
}

type limit struct {
	Unit            scalar `json:"unit"`
	RequestsPerUnit uint32 `json:"requests_per_unit" zero:"meant"`
	Unlimited       bool   `json:"unlimited"`
	Name            scalar `json:"name"`
	Replaces        []struct {
		Name scalar `json:"name"`
	} `json:"replaces"`
	UnitMultiplier *scalar `json:"unit_multiplier"`
}

type parser struct {
	*strict.File
	config *Config
	paths  map[string]bool
}

func (p *parser) file(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if p.File, err = strict.Read(file); err != nil {
		return err
	}
	var document struct {
		Domain      scalar       `json:"domain"`
		Descriptors []descriptor `json:"descriptors"`
	}
	p.Decode(&document)
	domain := string(document.Domain)
	if domain == "" {
		p.Add("domain", "is missing")
		return p.Err()
	}
	if p.config.domains[domain] == nil {
		p.config.domains[domain] = &node{children: map[string]*node{}}
	}
	p.descriptors(p.config.domains[domain], false, domain, "", document.Descriptors)
	return p.Err()
}

func (p *parser) descriptors(into *node, valued bool, path, at string, list []descriptor) {
	for i, d := range list {
		p.descriptor(into, valued, path, fmt.Sprintf("%sdescriptors[%d].", at, i), d)
	}
}

func (p *parser) descriptor(into *node, valued bool, path, at string, d descriptor) {
	name := string(d.Key)
	if name == "" {
		p.Add(at+"key", "is missing")
		return
	}
	if d.Value != "" {
		name += "_" + string(d.Value)
	}
	path += "." + name
	if into.children[name] != nil {
		p.Add(at+"key", "%s is defined twice", path)
		return
	}
	n := &node{children: map[string]*node{}, shares: d.ShareThreshold, valued: d.ValueToMetric}
	into.children[name], valued = n, valued || d.ValueToMetric
	if parts := bytes.Split([]byte(name), []byte("*")); len(parts) > 1 {
		into.wild = append(into.wild, wildcard{name, parts, n})
	} else if d.ShareThreshold {
		p.Add(at+"share_threshold", "applies only to values with *")
	}
	if d.RateLimit != nil {
		n.limit = p.limit(*d.RateLimit, path, at+"rate_limit.")
		n.limit.Shadow, n.limit.Quota = d.ShadowMode, d.QuotaMode
		n.limit.detailed, n.limit.valued = d.DetailedMetric, valued
	}
	p.descriptors(n, valued, path, at, d.Descriptors)
}

func (p *parser) limit(said limit, path, at string) *Limit {
	unit := string(said.Unit)
	l := &Limit{Path: path, Unlimited: said.Unlimited, Rate: &Rate{Name: string(said.Name),
		RequestsPerUnit: said.RequestsPerUnit, Unit: unitOf(unit)}}
	if said.UnitMultiplier != nil {
		p.Add(at+"unit_multiplier", "is not allowed in files, as in envoyproxy/ratelimit")
	}
	switch {
	case l.Unlimited && unit != "":
		p.Add(at+"unit", "cannot be combined with unlimited")
	case !l.Unlimited && l.Rate.Unit == 0:
		p.Add(at+"unit", "%q: want second, minute, hour, day, week, month or year%s", unit,
			nearest.Hint(unit, []string{"second", "minute", "hour", "month"}))
	}
	for i, replaced := range said.Replaces {
		name := string(replaced.Name)
		switch place := fmt.Sprintf("%sreplaces[%d].name", at, i); name {
		case "":
			p.Add(place, "is missing")
		case l.Rate.Name:
			p.Add(place, "%s is the name of the limit itself", name)
		}
		l.Replaces = append(l.Replaces, name)
	}
	if p.paths[path] {
		p.Add(strings.TrimSuffix(at, "."), "another limit has the name %s in metrics", path)
	}
	p.paths[path] = true
	p.config.limits = append(p.config.limits, l)
	return l
}
