package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/internal/base/reach"
	"github.com/penstock-mq/penstock/internal/base/strict"
	"github.com/penstock-mq/penstock/internal/server/installation"
	"github.com/penstock-mq/penstock/internal/server/policyfile"
	"github.com/penstock-mq/penstock/policy"
)

// Flags defines --config and the flags of settings.
func Flags(flags *pflag.FlagSet) {
	define(flags)
	flags.Lookup("http-listen").DefValue = AdmitterListen
}

// DrainerFlags leaves out the embedded server, the limits and the gateways.
func DrainerFlags(flags *pflag.FlagSet) { define(flags, "nats.embedded.", "state.", "envoy.") }

func define(set *pflag.FlagSet, without ...string) {
	initial, given := defaults(), map[string]string{}
	for _, s := range settings(&initial) {
		if !s.value.IsZero() {
			given[s.key] = strings.ReplaceAll(strings.Trim(fmt.Sprint(s.value), "[]"), " ", ",")
		}
	}
	for _, f := range flags {
		where := " (" + f.key + ", " + env(f.key) + ")"
		if f.key == configKey {
			where = " (or " + env(f.key) + ")"
		}
		if !slices.ContainsFunc(without, func(group string) bool {
			return strings.HasPrefix(f.key, group)
		}) {
			set.String(f.name, "", f.usage+where)
			set.Lookup(f.name).DefValue = given[f.key] // only for the help
		}
	}
}

// FileName returns the name of the configuration file, or "".
func FileName(flags *pflag.FlagSet) string { return outside(flags).GetString(configKey) }

// LoadFile reads the settings from the file that the flags or the environment name, then from the
// environment, then from the flags: the last one that gives a setting wins. Errors name all
// mistakes, with their places.
func LoadFile(flags *pflag.FlagSet) (Config, error) {
	v := outside(flags)
	name := v.GetString(configKey)
	switch {
	case name == "" && v.IsSet(configKey):
		return Config{}, errors.New(source(flags, configKey) + ": is empty")
	case name == "":
		return Load(nil, flags)
	}
	// A pipe or a device could not be read again, and might never end.
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return Config{}, fmt.Errorf("open configuration: %s is not a regular file", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return Config{}, fmt.Errorf("open configuration: %w", err)
	}
	defer file.Close()
	return Load(file, flags)
}

// Load reads a YAML or JSON file, or nil. Environment variables override it, and flags, which may
// be nil, override these. A file's mistakes count also where they are overridden.
//
// The error joins all problems in the order of the file: `penstock.yaml:7: policies[2].outflow:
// "10/x": …`, or "line 7: …" if the file has no name. An unknown PENSTOCK_ variable is only a
// warning, because Kubernetes sets PENSTOCK_PORT for a service called penstock.
func Load(file io.Reader, flags *pflag.FlagSet) (Config, error) {
	f, err := strict.Read(file)
	if err != nil {
		return Config{}, err
	}
	var document struct {
		Config
		Policies     any `json:"policies"`
		SharedLimits any `json:"shared_limits"`
		Schedules    any `json:"schedules"`
		// of listeners, which no variable can name
		Outbound []Outbound `json:"outbound"`
	}
	f.Decode(&document)
	c := resolve(f, flags)
	c.Outbound = document.Outbound
	c.NATS.CA, c.NATS.Cert, c.NATS.Key = c.NATS.TLS.CA, c.NATS.TLS.Cert, c.NATS.TLS.Key
	c.Drain.Lease = cmp.Or(c.Drain.Lease, installation.Lease(c.NATS.Replicas))
	c.Policies = policyfile.Read(f, c.possible)
	checker{f}.config(c)
	c.Schedules = schedules.Read(f, c.Policies)
	if err := f.Err(); err != nil {
		return Config{}, err
	}
	c.Warnings = slices.Concat(strangers(os.Environ()), c.HTTP.Guard().Warnings(),
		c.Envoy.Guard(c.HTTP).Warnings())
	for _, o := range c.Outbound {
		c.Warnings = append(c.Warnings, o.Guard(c.HTTP).Warnings()...)
	}
	c.Doubts = c.doubts()
	if c.NATS.URL == "" {
		c.Warnings = append(c.Warnings, c.NATS.Embedded.Guard().Warnings()...)
	}
	return c, nil
}

func (c Config) possible(p policy.Policy) []policy.Problem {
	problems := p.CheckPrefix(c.NATS.Prefix)
	if p.Target != nil && p.Target.HTTP != nil {
		rules := reach.Rules{Operator: true, Allow: c.Targets.Allow}
		if to, err := url.Parse(p.Target.HTTP.URL); err == nil {
			if err := rules.CheckHost(to.Hostname()); err != nil {
				problems = append(problems,
					policy.Problem{Field: "target.http.url", Reason: err.Error()})
			}
		}
	}
	if c.State.Store == "redis" {
		problems = append(problems, p.OnRedis()...)
		if c.State.Redis.Cluster {
			problems = append(problems, p.OnCluster()...)
		}
	}
	return problems
}
