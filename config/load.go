package config

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/spf13/viper"

	"github.com/penstock-mq/penstock/admission/schedules"
	"github.com/penstock-mq/penstock/internal/installation"
	"github.com/penstock-mq/penstock/internal/yamlfile"
	"github.com/penstock-mq/penstock/policy"
)

const (
	envPrefix  = "PENSTOCK_"
	configFlag = "config"
	configEnv  = envPrefix + "CONFIG"
)

// Flags defines --config, which names the file for [LoadFile], and the flags that override what the
// file says.
func Flags(flags *pflag.FlagSet) { define(flags, settings) }

// DrainerFlags is [Flags] for a program without an embedded server, without limits and without
// gateways: those of the three are left out.
func DrainerFlags(flags *pflag.FlagSet) {
	define(flags, slices.DeleteFunc(slices.Clone(settings), func(s setting) bool {
		group, _, _ := strings.Cut(s.key, ".")
		return strings.HasPrefix(s.key, "nats.embedded.") || group == "state" || group == "envoy"
	}))
}

func define(flags *pflag.FlagSet, settings []setting) {
	flags.String(configFlag, "", "read the configuration from this YAML `file` (or "+configEnv+")")
	for _, s := range settings {
		if s.flag != "" {
			flags.String(s.flag, "", s.usage+" ("+s.key+", "+env(s.key)+")")
		}
	}
}

// env returns the environment variable of a key.
func env(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// FileName returns the file that --config or the variable PENSTOCK_CONFIG names, empty for none.
func FileName(flags *pflag.FlagSet) string {
	if f := flags.Lookup(configFlag); f != nil && f.Changed {
		return f.Value.String()
	}
	return os.Getenv(configEnv)
}

// LoadFile is [Load] of the file with the name that [FileName] returns.
func LoadFile(flags *pflag.FlagSet) (Config, error) {
	name := FileName(flags)
	switch {
	case name == "" && given(flags, configFlag) != nil:
		return Config{}, yamlfile.Problem{Place: "--" + configFlag, Reason: "is empty"}
	case name == "":
		return Load(nil, flags)
	}
	file, err := os.Open(name)
	if err != nil {
		return Config{}, fmt.Errorf("open configuration: %w", err)
	}
	defer file.Close()
	return Load(file, flags)
}

// Load reads a YAML file, nil for none. Over it go the environment variables PENSTOCK_<KEY>, such
// as PENSTOCK_NATS_URL or PENSTOCK_NATS_EMBEDDED_DIR, and over these the flags that were given
// (flags may be nil). An empty variable counts as not set. Policies and schedules come from the
// file alone.
//
// The error joins every problem that there is, in the order of the file, each with its line and its
// place: `penstock.yaml:7: policies[2].outflow: "10/x": …`, or "line 7: …" when the file has no
// Name as an [*os.File] has. A variable that begins with PENSTOCK_ and means nothing is no error
// but one of the Warnings, because orchestrators set some of their own: Kubernetes sets
// PENSTOCK_PORT for a service that is called penstock.
func Load(file io.Reader, flags *pflag.FlagSet) (Config, error) {
	var name string
	if named, ok := file.(interface{ Name() string }); ok {
		name = named.Name()
	}
	doc, err := yamlfile.Read(file)
	if p, ok := errors.AsType[yamlfile.Problem](err); ok {
		return Config{}, yamlfile.Join(name, []yamlfile.Problem{p})
	}
	if err != nil {
		return Config{}, err
	}
	found := append(doc.Problems, unknownKeys(doc.Tree, "")...)
	scheduled, schedule := doc.Tree["schedules"]
	policies := map[string]any{}
	for _, list := range lists {
		policies[list] = doc.Tree[list]
		delete(doc.Tree, list) // viper would take the case off its keys
	}
	sources, err := layer(doc.Tree, flags)
	if err != nil {
		return Config{}, err
	}

	c := defaults()
	for _, s := range settings {
		value := sources.Get(s.key)
		if value == nil {
			continue
		}
		if err := s.read(&c, value); err != nil {
			found = append(found, yamlfile.Problem{Place: s.key, Reason: err.Error()})
		}
	}
	if c.Drain.Lease == 0 {
		c.Drain.Lease = installation.Lease(c.NATS.Replicas)
	}
	found = append(found, validate(c)...)
	var problems []yamlfile.Problem
	c.Policies, problems = yamlfile.Policies(policies, c.possible)
	found = append(found, problems...)
	for i, p := range c.Policies {
		for _, bad := range p.CheckPrefix(c.NATS.Prefix) {
			found = append(found,
				yamlfile.Problem{Place: fmt.Sprintf("policies[%d].%s", i, bad.Field),
					Reason: bad.Reason})
		}
	}
	if schedule {
		c.Schedules, problems = schedules.Read(scheduled, c.Policies)
		found = append(found, problems...)
	}
	for i, p := range found {
		source := sourceOf(p.Place, flags)
		switch {
		case p.Line > 0:
		case source != "":
			found[i].Place += " (" + source + ")"
		default:
			found[i].Line = doc.Line(p.Place)
		}
	}
	if err := yamlfile.Join(name, found); err != nil {
		return Config{}, err
	}
	c.Warnings = slices.Concat(strangers(os.Environ()), c.HTTP.guard().Warnings(),
		c.Envoy.guard(c.HTTP).Warnings())
	if c.NATS.URL == "" {
		c.Warnings = append(c.Warnings, c.NATS.Embedded.guard().Warnings()...)
	}
	return c, nil
}

// possible returns what keeps the store of limits from having those of a policy.
func (c Config) possible(p policy.Policy) []policy.Problem {
	if c.State.Store != "redis" {
		return nil
	}
	problems := p.OnRedis()
	if c.State.Redis.Cluster {
		problems = append(problems, p.OnCluster()...)
	}
	return problems
}

// layer puts flags over variables over the file. The defaults are not viper's: it would take them
// for given.
func layer(tree map[string]any, flags *pflag.FlagSet) (*viper.Viper, error) {
	v := viper.New()
	if err := v.MergeConfigMap(tree); err != nil {
		return nil, fmt.Errorf("merge configuration: %w", err)
	}
	for _, s := range settings {
		if err := v.BindEnv(s.key, env(s.key)); err != nil {
			return nil, fmt.Errorf("bind %s: %w", env(s.key), err)
		}
		if f := given(flags, s.flag); f != nil {
			if err := v.BindPFlag(s.key, f); err != nil {
				return nil, fmt.Errorf("bind --%s: %w", s.flag, err)
			}
		}
	}
	return v, nil
}

// given is a flag that was set on the command line, nil otherwise.
func given(flags *pflag.FlagSet, name string) *pflag.Flag {
	if flags == nil || name == "" {
		return nil
	}
	if f := flags.Lookup(name); f != nil && f.Changed {
		return f
	}
	return nil
}

// sourceOf returns which flag or variable gave the value at a place, empty when that was the file
// or nobody.
func sourceOf(place string, flags *pflag.FlagSet) string {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == place })
	switch {
	case i < 0:
		return ""
	case given(flags, settings[i].flag) != nil:
		return "--" + settings[i].flag
	case os.Getenv(env(place)) != "":
		return env(place)
	}
	return ""
}

// clients are the variables of the client, cmd/penstock, which say who it asks.
var clients = []string{envPrefix + "SERVER", envPrefix + "TOKEN", envPrefix + "TOKEN_FILE",
	envPrefix + "CACERT", envPrefix + "CERT", envPrefix + "CERT_KEY"}

// strangers warns of environment variables that look like ours and are not.
func strangers(environ []string) []string {
	var warnings []string
	names := slices.Clone(clients)
	for _, s := range settings {
		names = append(names, env(s.key))
	}
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, envPrefix) && name != configEnv &&
			!slices.Contains(names, name) {
			warnings = append(warnings,
				fmt.Sprintf("environment variable %s is no setting and has no effect", name))
		}
	}
	slices.Sort(warnings)
	return warnings
}
