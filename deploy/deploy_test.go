// Package deploy_test loads every file of this directory as its reader does.
package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/config"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/internal/server/audit"
	"github.com/penstock-mq/penstock/internal/server/telemetry"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
)

var checks = map[string]func(t *testing.T, text []byte){
	"quickstart.yaml":           quickstart,
	"production.yaml":           production,
	"nats.conf":                 natsServer,
	"penstock-admitter.service": unit,
	"penstock-drainer.service":  unit,
	"prometheus.yaml":           prometheus,
	"penstock-alerts.yaml":      alerts,

	"grafana/penstock.json": dashboard,
	"nats/roles.conf":       func(t *testing.T, _ []byte) { rolesOf(t) },
	"nats/values.yaml":      natsValues,

	"kubernetes-example/penstock.yaml":      kubernetes,
	"kubernetes-example/kustomization.yaml": ofKubernetes,
	"kubernetes-example/proxy.yaml":         ofKubernetes,
	"kubernetes-example/credential.yaml":    ofKubernetes,
	"kubernetes-example/ingress.yaml":       ofKubernetes,
	"kubernetes-example/backup.yaml":        ofKubernetes,

	"Dockerfile":                       dockerfile,
	"compose.yaml":                     compose,
	"compose/penstock.yaml":            composed,
	"kubernetes/penstock.yaml":         kubernetes,
	"kubernetes/kustomization.yaml":    ofKubernetes,
	"kubernetes/admitter.yaml":         ofKubernetes,
	"kubernetes/drainer.yaml":          ofKubernetes,
	"kubernetes/network.yaml":          ofKubernetes,
	"kubernetes/podmonitor.yaml":       ofKubernetes,
	"kubernetes/scaledobject.yaml":     scaled,
	"compose/prometheus.yaml":          composedPrometheus,
	"compose/grafana-datasources.yaml": provisioning,
	"compose/grafana-dashboards.yaml":  provisioning,
}

func TestEveryFile(t *testing.T) {
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, entry fs.DirEntry, err error) error {
		if entry != nil && name == "helm" {
			return fs.SkipDir
		}
		if err != nil || entry.IsDir() || strings.HasSuffix(name, "_test.go") {
			return err
		}
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			check, ok := checks[name]
			if !ok {
				t.Fatal("nothing checks this file")
			}
			check(t, text)
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t *testing.T, text []byte) config.Config {
	t.Helper()
	c, err := config.Load(bytes.NewReader(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func quickstart(t *testing.T, text []byte) {
	c := load(t, text)
	if c.NATS.URL != "" || c.NATS.Embedded.Listen == "" || c.HTTP.Listen != "" {
		t.Errorf("wants something set up: %+v", c)
	}
	makefile, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	const command = "admitter --drain --echo 127.0.0.1:8081 --config deploy/quickstart.yaml"
	if !bytes.Contains(text, []byte(command)) || !bytes.Contains(makefile, []byte(command)) {
		t.Errorf("the file or make run does not say %s", command)
	}
	var seen []policy.Algorithm
	for _, p := range c.Policies {
		seen = append(seen, p.Algorithm)
		if p.HasQueue() && (p.Target == nil || p.Target.HTTP.URL != "http://127.0.0.1:8081") {
			t.Errorf("%s has no target on this machine", p.Name)
		}
	}
	for _, algorithm := range []policy.Algorithm{policy.TokenBucket, policy.LeakingBucket,
		policy.FixedWindow,
		policy.SlidingLog, policy.SlidingCounter} {
		if !slices.Contains(seen, algorithm) {
			t.Errorf("no policy with %s", algorithm)
		}
	}
}

// settingLine matches a line of YAML with a setting, perhaps commented out.
var settingLine = regexp.MustCompile(`^( *)# ( *[a-z_]+:.*)$`)

func production(t *testing.T, text []byte) {
	c := load(t, text)
	if c.NATS.URL == "" || c.NATS.Replicas != 3 || c.Drain.Lease != 15*time.Second {
		t.Errorf("got %+v", c)
	}
	// Commented-out settings show the default: without the comment signs, the file must be valid
	// and equal, except for settings without a default.
	var lines []string
	for line := range strings.Lines(string(text)) {
		lines = append(lines, settingLine.ReplaceAllString(strings.TrimRight(line, "\n"), "$1$2"))
	}
	all := load(t, []byte(strings.Join(lines, "\n")))
	if all.HTTP.Listen != config.AdmitterListen ||
		!slices.Equal(all.Drain.Policies, []string{"stripe"}) {
		t.Errorf("http.listen or drain.policies is not among the comments: %+v", all)
	}
	all.HTTP, all.Drain.Policies = c.HTTP, c.Drain.Policies
	for _, ps := range [][]policy.Policy{c.Policies, all.Policies} {
		for i, p := range ps {
			ps[i] = p.WithDefaults()
			ps[i].MaxJobs = p.QueueJobs()
		}
	}
	before, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	after, err := yaml.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, after) {
		t.Errorf("comments change\n%s\nto\n%s", before, after)
	}
}

// natsServer checks that a server accepts the file, and that it suits admitters and drainers.
// internal/chaos runs it.
func natsServer(t *testing.T, _ []byte) {
	t.Setenv("NATS_PASSWORD", "secret")
	o, err := server.ProcessConfigFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || o.StoreDir == "" || o.Cluster.Name == "" || len(o.Routes) != 3 {
		t.Errorf("no cluster of three with JetStream: %+v", o)
	}
	if o.MaxPayload < admission.MaxBody+64<<10 {
		t.Errorf("a body of %d bytes and its headers do not fit %d", admission.MaxBody,
			o.MaxPayload)
	}
	if len(o.Users) != 1 || o.Users[0].Account == nil {
		t.Errorf("no user of an account: %+v", o.Users)
	}
}

// scaled checks that KEDA finds the number that it scales by.
func scaled(t *testing.T, text []byte) {
	ofKubernetes(t, text)
	at := regexp.MustCompile(`valueLocation: (penstock_\w+)\{policy="mail"\}`).FindSubmatch(text)
	if at == nil || !exposes(exposition(t, admits), string(at[1])) {
		t.Errorf("no metric %q", at)
	}
}

func TestTheChartsSchemaKnowsTheSettings(t *testing.T) {
	var schema struct {
		Properties struct {
			Config struct{ Properties map[string]any }
		}
	}
	text := read(t, "helm/penstock/values.schema.json")
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	want := []string{"outbound", "policies", "schedules", "shared_limits"}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[config.Config]()) {
		if name := field.Tag.Get("json"); name != "" && name != "-" {
			want = append(want, name)
		}
	}
	slices.Sort(want)
	got := slices.Sorted(maps.Keys(schema.Properties.Config.Properties))
	if !slices.Equal(got, want) {
		t.Errorf("config has %v, want %v", got, want)
	}
}

// assignments returns the values of a unit by section and name.
func assignments(t *testing.T, text []byte) map[string]string {
	t.Helper()
	values := map[string]string{}
	section := ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		key, value, assigned := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case line == "[Unit]" || line == "[Service]" || line == "[Install]":
			section = line
		case !assigned || section == "" || strings.ContainsAny(key, " \t"):
			t.Errorf("%q is neither a section nor an assignment", line)
		default:
			values[section+key] = value
		}
	}
	return values
}

// Of two units with one StateDirectory and a DynamicUser each, the one that starts becomes the
// owner of all files there.
func TestUnitsOfOneHostShareNoStateDirectory(t *testing.T) {
	of := map[string]string{}
	for _, name := range []string{"penstock-admitter.service", "penstock-drainer.service"} {
		values := assignments(t, read(t, name))
		dir := values["[Service]StateDirectory"]
		if other, shared := of[dir]; shared && dir != "" {
			t.Errorf("%s and %s share the StateDirectory %s", name, other, dir)
		}
		if of[dir] = name; values["[Service]DynamicUser"] != "yes" {
			t.Errorf("%s does not run as a DynamicUser", name)
		}
		if work := values["[Service]WorkingDirectory"]; work != "" && work != "/var/lib/"+dir {
			t.Errorf("%s works in %s, which may belong to another user", name, work)
		}
	}
}

func unit(t *testing.T, text []byte) {
	values := assignments(t, text)
	command := strings.Fields(values["[Service]ExecStart"])
	if len(command) == 0 {
		t.Fatal("no ExecStart")
	}
	flags := pflag.NewFlagSet(command[0], pflag.ContinueOnError)
	if strings.HasSuffix(command[0], "/drainer") {
		config.DrainerFlags(flags)
	} else {
		config.Flags(flags)
	}
	if err := flags.Parse(command[1:]); err != nil {
		t.Fatal(err)
	}
	if err := flags.Set("config", "production.yaml"); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadFile(flags)
	if err != nil {
		t.Fatal(err)
	}
	if c.HTTP.Listen == "" {
		t.Error("serves no metrics")
	}
	if host, _, err := net.SplitHostPort(c.HTTP.Listen); err != nil ||
		!net.ParseIP(host).IsLoopback() {
		t.Errorf("listens at %s, where others reach an API that asks nobody who he is",
			c.HTTP.Listen)
	}
	// A dynamic user cannot be the owner of the file that production.yaml names.
	const copied = "${CREDENTIALS_DIRECTORY}/tokens.yaml"
	original := load(t, read(t, "production.yaml")).HTTP.Tokens
	if c.HTTP.Tokens != copied || values["[Service]LoadCredential"] != "tokens.yaml:"+original {
		t.Errorf("tokens of %s are read from %s, and loaded from %s", original, c.HTTP.Tokens,
			values["[Service]LoadCredential"])
	}
	stop := values["[Service]TimeoutStopSec"]
	patience, err := time.ParseDuration(stop)
	if err != nil || patience < c.Grace+10*time.Second {
		t.Errorf("TimeoutStopSec=%q leaves little beyond the grace of %s: %v", stop, c.Grace, err)
	}
	if values["[Service]RestartPreventExitStatus"] != "2" || values["[Install]WantedBy"] == "" {
		t.Errorf("got %v", values)
	}
}

func strict(t *testing.T, text []byte, into any) {
	t.Helper()
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(into); err != nil {
		t.Fatal(err)
	}
}

func prometheus(t *testing.T, text []byte) {
	var c struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string `yaml:"job_name"`
			Authorization struct {
				File string `yaml:"credentials_file"`
			} `yaml:"authorization"`
			StaticConfigs []struct {
				Targets []string `yaml:"targets"`
			} `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	strict(t, text, &c)
	if len(c.ScrapeConfigs) != 1 || len(c.ScrapeConfigs[0].StaticConfigs) != 1 ||
		!slices.Contains(c.ScrapeConfigs[0].StaticConfigs[0].Targets, config.AdmitterListen) {
		t.Errorf("got %+v", c)
	}
	for _, file := range c.RuleFiles {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

func exposes(exposed, name string) bool {
	return strings.Contains(exposed, "\n"+name+"{") || strings.Contains(exposed, "\n"+name+" ")
}

func exposition(t *testing.T, parts ...func(*telemetry.Registry)) string {
	t.Helper()
	r := telemetry.NewRegistry()
	for _, register := range parts {
		register(r)
	}
	recorder := httptest.NewRecorder()
	r.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(recorder,
		httptest.NewRequest("GET", "/metrics", nil))
	text, err := io.ReadAll(recorder.Body)
	if err != nil {
		t.Fatal(err)
	}
	return "\n" + string(text)
}

func everyProcess(r *telemetry.Registry) {
	r.FileRead()("configuration", nil)
	r.NATS(func() bool { return true })
}

func admits(r *telemetry.Registry) {
	store, admission := r.Store(), r.Admission()
	store.Take(queue.Event{Type: jet.EventStoreUp, Value: 1})
	store.Take(queue.Event{Type: jet.EventFellBack, Policy: "p", Name: "open"})
	r.Envoy()
	r.Outbound()("p", "answered", time.Second)
	r.OutboundFaults()(map[[2]string]int{{"p", "cost"}: 1})
	r.QueueJobs(func(context.Context) (map[string]uint64, error) {
		return map[string]uint64{"p": 1}, nil
	})
	for _, e := range []queue.Event{
		{Type: jet.EventStored, Data: jet.Storage{Fill: jet.Fill{Used: 1, Max: 2},
			Jobs:   map[string]jet.Fill{"stripe": {Used: 1, Max: 2}},
			Dead:   map[string]uint64{"stripe": 1},
			Copies: map[string]jet.Copies{"jobs": {Lacking: 2, Current: 2, Wanted: 3}}}},
		{Type: jet.EventFollowed, Data: inforce.Entries{"p": {}}},
		{Type: jet.EventWithoutDrainer, Value: 1},
		{Type: jet.EventApplyFailed, Value: 1},
		{Type: jet.EventAdmitted, Name: "rejected"},
		{Type: jet.EventChecked, Value: 1},
		{Type: jet.EventTicked, Name: "missed"},
		{Type: jet.EventShadowed, Name: "next", Value: 1, For: time.Second},
		{Type: jet.EventHits, Name: "p", Reason: "near_limit", Value: 1},
	} {
		e.Policy = "p"
		admission.Take(e)
	}
	r.Audit(func() []audit.Figure { return []audit.Figure{{Policy: "p", Limit: "outflow"}} })
}

func drains(r *telemetry.Registry) {
	drain := r.Drain()
	for _, e := range []queue.Event{
		{Type: jet.EventOwnable, Value: 1},
		{Type: jet.EventBreakers, Value: 1},
		{Type: jet.EventLowered, Value: 1},
		{Type: jet.EventWithoutWorkers, Value: 1},
		{Type: queue.EventStarted, Shadow: map[string]int64{"next": 1000}},
		{Type: queue.EventDead},
		{Type: jet.EventLimitBlocked, Name: "daily", For: time.Second},
		{Type: queue.EventCallbackLost, Name: "full"},
		{Type: jet.EventLimitsLeft, Data: []api.LimitLeft{{Name: "daily", Left: 1, Most: 2}}},
		{Type: jet.EventOwned, Value: 1},
	} {
		e.Policy = "p"
		drain.Take(e)
	}
}
