package config_test

import (
	"errors"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/penstock-mq/penstock/config"
)

func commandLine(t *testing.T, arguments ...string) *pflag.FlagSet {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	config.Flags(flags)
	if err := flags.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return flags
}

func TestDrainerFlags(t *testing.T) {
	all, drainer := commandLine(t), pflag.NewFlagSet("drainer", pflag.ContinueOnError)
	config.DrainerFlags(drainer)
	var missing []string
	all.VisitAll(func(f *pflag.Flag) {
		if drainer.Lookup(f.Name) == nil {
			missing = append(missing, f.Name)
		}
	})
	if want := []string{"envoy-files", "envoy-listen", "nats-dir", "nats-listen", "nats-max-store",
		"nats-sync", "nats-users", "redis-addrs", "state-cache",
		"state-store"}; !slices.Equal(missing, want) {
		t.Errorf("without %v, want %v", missing, want)
	}
	for name, want := range map[string]string{"http-listen": config.AdmitterListen, "grace": "30s",
		"nats-sync": "1s", "redis-addrs": "127.0.0.1:6379"} {
		if got := all.Lookup(name); got.DefValue != want || got.Value.String() != "" {
			t.Errorf("%s: the help says %q, and the value is %q", name, got.DefValue, got.Value)
		}
	}
	if got := drainer.Lookup("http-listen").DefValue; got != "" {
		t.Errorf("a drainer's http-listen: the help says %q", got)
	}
	if err := drainer.Parse([]string{"--nats-url=nats://flag:1", "--drain-lease=7s"}); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(strings.NewReader(small), drainer)
	if err != nil || c.NATS.URL != "nats://flag:1" || c.Drain.Lease != 7*time.Second ||
		c.HTTP.Listen != "127.0.0.1:1" {
		t.Errorf("got %+v, %v", c, err)
	}
}

const small = `
http: {listen: "127.0.0.1:1"}
nats: {url: "nats://file:4222"}
log: {level: warn}
`

func TestFlagsGoOverEnvironmentOverFile(t *testing.T) {
	t.Setenv("PENSTOCK_NATS_URL", "nats://env:4222")
	t.Setenv("PENSTOCK_NATS_REPLICAS", "3")
	t.Setenv("PENSTOCK_LOG_LEVEL", "debug")
	t.Setenv("PENSTOCK_NATS_EMBEDDED_DIR", "/env")
	t.Setenv("PENSTOCK_NATS_EMBEDDED_SYNC", "always")
	t.Setenv("PENSTOCK_DRAIN_POLICIES", "a, b,,c")
	t.Setenv("PENSTOCK_DRAIN_LEASE", "3s")
	flags := commandLine(t, "--log-level", "error", "--drain-lease=4s", "--nats-dir", "/flag",
		"--http-listen=")
	c, err := config.Load(strings.NewReader(small), flags)
	if err != nil {
		t.Fatal(err)
	}
	if c.NATS.URL != "nats://env:4222" || c.NATS.Replicas != 3 || c.Log.Level != "error" ||
		c.NATS.Embedded.Dir != "/flag" || !c.NATS.Embedded.Sync.Always ||
		c.Drain.Lease != 4*time.Second ||
		!reflect.DeepEqual(c.Drain.Policies, []string{"a", "b", "c"}) ||
		c.Grace != 30*time.Second ||
		c.HTTP.Listen != "" {
		t.Errorf("got %+v", c)
	}
}

func TestEnvironmentAlone(t *testing.T) {
	t.Setenv("PENSTOCK_HTTP_LISTEN", "127.0.0.1:9")
	t.Setenv("PENSTOCK_NATS_URL", "env:4222")
	t.Setenv("PENSTOCK_STATE_REDIS_ADDRS", "a:1,b:2")
	t.Setenv("PENSTOCK_STATE_REDIS_CLUSTER", "true")
	t.Setenv("PENSTOCK_STATE_REDIS_PASSWORD", "secret")
	c, err := config.Load(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.HTTP.Listen != "127.0.0.1:9" || c.NATS.URL != "env:4222" ||
		len(c.State.Redis.Addrs) != 2 ||
		!c.State.Redis.Cluster || c.State.Redis.Password != "secret" {
		t.Errorf("got %+v", c)
	}
}

func TestProblemsNameTheirSource(t *testing.T) {
	t.Setenv("PENSTOCK_NATS_REPLICAS", "three")
	t.Setenv("PENSTOCK_DRAIN_LEASE", "5")
	t.Setenv("PENSTOCK_GRACE", "5")
	_, err := config.Load(strings.NewReader("log: {format: csv}"), commandLine(t, "--grace", "48h"))
	want := `nats.replicas (PENSTOCK_NATS_REPLICAS): "three": want a whole number
drain.lease (PENSTOCK_DRAIN_LEASE): "5": want a duration with a unit, such as 250ms, 30s, 5m, 1d or 1w
grace (--grace): must be 0s to 1d, not 2d
line 1: log.format: "csv": want text or json`
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestUnknownVariablesAreWarnings(t *testing.T) {
	t.Setenv("PENSTOCK_PORT", "tcp://10.0.0.1:80")
	t.Setenv("PENSTOCK_NATS_UR", "nats://a:4222")
	t.Setenv("PENSTOCK_CONFIG", "")
	t.Setenv("PENSTOCK_GRACE", "1s")
	c, err := config.Load(nil, nil)
	want := []string{"environment variable PENSTOCK_NATS_UR is no setting and has no effect",
		"environment variable PENSTOCK_PORT is no setting and has no effect"}
	if err != nil || !reflect.DeepEqual(c.Warnings, want) {
		t.Errorf("got %q, %v", c.Warnings, err)
	}
}

func TestConfigFileByVariable(t *testing.T) {
	t.Setenv("PENSTOCK_CONFIG", "testdata/full.yaml")
	if c, err := config.LoadFile(commandLine(t)); err != nil || c.NATS.Prefix != "staging" {
		t.Errorf("got %+v, %v", c, err)
	}
	_, err := config.LoadFile(commandLine(t, "--config", "testdata/absent.yaml"))
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "open configuration: ") {
		t.Errorf("an absent file: %v", err)
	}
}

// An unset variable of a script must not start a process without its policies.
func TestConfigFileWithoutAName(t *testing.T) {
	if _, err := config.LoadFile(commandLine(t, "--config", "")); err == nil ||
		err.Error() != "--config: is empty" {
		t.Errorf("got %v", err)
	}
}
