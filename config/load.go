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
)

const (
	envPrefix  = "PENSTOCK_"
	configFlag = "config"
	configEnv  = envPrefix + "CONFIG"
)

// Flags defines --config, which names the file for [LoadFile], and the flags that override what the file says.
func Flags(flags *pflag.FlagSet) { define(flags, settings) }

// DrainerFlags is [Flags] for a program without an embedded server and without limits: those of the two are left out.
func DrainerFlags(flags *pflag.FlagSet) {
	define(flags, slices.DeleteFunc(slices.Clone(settings), func(s setting) bool {
		return strings.HasPrefix(s.key, "nats.embedded.") || strings.HasPrefix(s.key, "state.")
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

// env is the environment variable of a key.
func env(key string) string { return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) }

// LoadFile is [Load] of the file that --config or the variable PENSTOCK_CONFIG names, or of none.
func LoadFile(flags *pflag.FlagSet) (Config, error) {
	name := os.Getenv(configEnv)
	if f := flags.Lookup(configFlag); f != nil && f.Changed {
		name = f.Value.String()
	}
	if name == "" {
		return Load(nil, flags)
	}
	file, err := os.Open(name)
	if err != nil {
		return Config{}, fmt.Errorf("open configuration: %w", err)
	}
	defer file.Close()
	return Load(file, flags)
}

// Load reads a YAML file, nil for none. Over it go the environment variables PENSTOCK_<KEY>, such as PENSTOCK_NATS_URL
// or PENSTOCK_NATS_EMBEDDED_DIR, and over these the flags that were given (flags may be nil). An empty variable counts
// as not set. Policies come from the file alone.
//
// The error joins every problem that there is, each with its place: `policies[2].outflow: "10/x": …`. A variable that
// begins with PENSTOCK_ and means nothing is no error but one of the Warnings, because orchestrators set some of their
// own: Kubernetes sets PENSTOCK_PORT for a service that is called penstock.
func Load(file io.Reader, flags *pflag.FlagSet) (Config, error) {
	tree, found, err := readTree(file)
	if err != nil {
		return Config{}, err
	}
	policies := tree["policies"]
	delete(tree, "policies") // viper would take the case off its keys
	sources, err := layer(tree, flags)
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
			found = append(found, problem{s.key, err.Error()})
		}
	}
	if c.Drain.Lease == 0 {
		c.Drain.Lease = leaseAlone
		if c.NATS.Replicas > 1 {
			c.Drain.Lease = leaseReplicated
		}
	}
	found = append(found, validate(c)...)
	for i, p := range found {
		found[i].place = placed(p.place, flags)
	}
	var problems []problem
	c.Policies, problems = readPolicies(policies, c.State.Store == "redis" && c.State.Redis.Cluster)
	if err := join(append(found, problems...)); err != nil {
		return Config{}, err
	}
	c.Warnings = strangers(os.Environ())
	return c, nil
}

// layer puts flags over variables over the file. The defaults are not viper's: it would take them for given.
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

// placed adds to the place of a problem where the value came from, unless that is the file.
func placed(place string, flags *pflag.FlagSet) string {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == place })
	if i < 0 {
		return place
	}
	if given(flags, settings[i].flag) != nil {
		return place + " (--" + settings[i].flag + ")"
	}
	if os.Getenv(env(place)) != "" {
		return place + " (" + env(place) + ")"
	}
	return place
}

// strangers warns of environment variables that look like ours and are not.
func strangers(environ []string) []string {
	var warnings []string
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		known := name == configEnv || slices.ContainsFunc(settings, func(s setting) bool { return env(s.key) == name })
		if strings.HasPrefix(name, envPrefix) && !known {
			warnings = append(warnings, fmt.Sprintf("environment variable %s is no setting and has no effect", name))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// problem is one thing that is wrong, and its place in the file.
type problem struct{ place, reason string }

func (p problem) Error() string {
	if p.place == "" {
		return p.reason
	}
	return p.place + ": " + p.reason
}

func join(problems []problem) error {
	errs := make([]error, len(problems))
	for i, p := range problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}
