package deploy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/policytest"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/roles"
	"github.com/penstock-mq/penstock/policy"
)

func rolesOf(t *testing.T) *server.Options {
	t.Helper()
	for _, name := range []string{"ADMITTER", "DRAINER", "PRODUCER", "CHECKER", "CALLER",
		"READER", "WORKER", "OPERATOR", "PUBLISHER"} {
		t.Setenv(name+"_PASSWORD", "secret")
	}
	text, err := os.ReadFile("nats/roles.conf")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "nats.conf")
	text = append([]byte("listen: \"127.0.0.1:-1\"\njetstream {store_dir: \""+dir+"\", "+
		"max_file_store: 100GB, max_memory_store: 8GB}\n"), text...)
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := server.ProcessConfigFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return options
}

func TestRolesConfMatchesTheEmbeddedServersRoles(t *testing.T) {
	options := rolesOf(t)
	found := map[roles.Role]bool{}
	for _, user := range options.Users {
		role := roles.Role(user.Username)
		if user.Account.Name != "PENSTOCK" {
			continue
		}
		found[role] = true
		want := roles.Of(role, "penstock", user.Username, []string{"mail"})
		may := user.Permissions
		if !slices.Equal(may.Publish.Allow, want.Publish) ||
			!slices.Equal(may.Subscribe.Allow, want.Subscribe) || may.Response != nil {
			t.Errorf("%s may publish to %+v and subscribe to %+v; want %+v", role, may.Publish,
				may.Subscribe, want)
		}
	}
	for _, role := range roles.All {
		if !found[role] {
			t.Errorf("no user has the role %s", role)
		}
	}
}

// unquoted matches the texts that NATS's chart writes without quotation marks.
var unquoted = regexp.MustCompile(`"<< (.*?) >>"`)

// natsValues checks that NATS's own chart, which merges config.merge into the configuration of its
// servers, gives them the settings of nats.conf.
func natsValues(t *testing.T, text []byte) {
	var values struct {
		Config struct {
			Cluster   struct{ Replicas int }
			JetStream struct{ Merge map[string]any } `yaml:"jetstream"`
			Merge     map[string]any
		}
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	var merged strings.Builder
	encoder := json.NewEncoder(&merged)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(values.Config.Merge); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NATS_PASSWORD", "secret")
	got, err := conf.Parse(unquoted.ReplaceAllString(merged.String(), "$1"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := conf.ParseFile("nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	store := want["jetstream"].(map[string]any)
	if !reflect.DeepEqual(got["accounts"], want["accounts"]) ||
		got["max_payload"] != want["max_payload"] ||
		values.Config.JetStream.Merge["sync_interval"] != store["sync_interval"] {
		t.Errorf("got %v, want what nats.conf has: %v", values.Config, want)
	}
	routes := want["cluster"].(map[string]any)["routes"].([]any)
	if values.Config.Cluster.Replicas != len(routes) {
		t.Errorf("%d servers, want %d", values.Config.Cluster.Replicas, len(routes))
	}
}

// serveRoles starts a server with nats/roles.conf, and returns its URL and a function that connects
// as a user.
func serveRoles(t *testing.T) (url string, as func(user string) *nats.Conn) {
	t.Helper()
	s, err := server.NewServer(rolesOf(t))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(waittest.Patience()) {
		t.Fatal("the server is not ready")
	}
	return s.ClientURL(), func(user string) *nats.Conn {
		nc, err := nats.Connect(s.ClientURL(), nats.UserInfo(user, "secret"),
			nats.CustomInboxPrefix(roles.Inbox(user)),
			nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		return nc
	}
}

// In the streams' account, an acknowledgement could go to any subject that the publish names.
func TestAPublisherInItsOwnAccountReachesOnlyItsPolicy(t *testing.T) {
	_, as := serveRoles(t)
	js, err := jetstream.New(as("admitter"))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	mail, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "PENSTOCK_mail",
		Subjects: []string{"penstock.jobs.mail.>"}})
	if err != nil {
		t.Fatal(err)
	}
	policies, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: "PENSTOCK_POLICIES"})
	if err == nil {
		_, err = policies.Create(ctx, "mail", []byte("a policy"))
	}
	if err != nil {
		t.Fatal(err)
	}
	publisher := as("publisher")
	for _, reply := range []string{"$KV.PENSTOCK_POLICIES.mail", "penstock.jobs.mail.other",
		"$JS.API.STREAM.PURGE.PENSTOCK_mail", "$JS.API.STREAM.DELETE.KV_PENSTOCK_POLICIES"} {
		if err := publisher.PublishRequest("penstock.jobs.mail.k", reply, nil); err != nil {
			t.Error(err)
		}
	}
	// The server stores no message whose reply is a request to JetStream.
	const stored = 3
	ack, err := publisher.Request("penstock.jobs.mail.k", nil, waittest.Patience())
	if err != nil || !strings.Contains(string(ack.Data), fmt.Sprintf(`"seq":%d`, stored)) {
		t.Fatalf("the last job: %+v, %v", ack, err)
	}
	if entry, err := policies.Get(ctx, "mail"); err != nil || string(entry.Value()) != "a policy" {
		t.Errorf("the policy: %+v, %v", entry, err)
	}
	if info, err := mail.Info(ctx); err != nil || info.State.Msgs != stored {
		t.Errorf("the stream: %+v, %v", info, err)
	}
	for _, subject := range []string{"penstock.jobs.stripe.k", "penstock.queue.mail.0.k",
		"$JS.API.STREAM.PURGE.PENSTOCK_mail", "$KV.PENSTOCK_POLICIES.mail"} {
		other := as("publisher")
		if err := other.Publish(subject, nil); err != nil || other.Flush() != nil ||
			other.LastError() == nil {
			t.Errorf("it may publish to %s: %v", subject, err)
		}
	}
}

// A worker runs a job by the protocol of docs/workers-protocol.md; an operator sees its events, and
// cancels another one.
func TestWorkersAndOperatorsWorkWithTheirRoles(t *testing.T) {
	url, as := serveRoles(t)
	p, err := penstock.Open(t.Context(), penstock.Options{URL: url, ServeNATS: true,
		Credentials: penstock.Credentials{User: "admitter", Password: "secret"},
		Policies:    []policy.Policy{policytest.Paced("mail", 10, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	go func() { _ = p.Run(t.Context()) }()
	worker, operator := as("worker"), as("operator")
	offers, err := worker.QueueSubscribeSync("penstock.work.mail", "workers")
	if err != nil {
		t.Fatal(err)
	}
	claims, err := worker.SubscribeSync(roles.Inbox("worker") + ".claim")
	if err != nil {
		t.Fatal(err)
	}
	events, err := operator.SubscribeSync("penstock.event.mail.>")
	if err != nil || operator.Flush() != nil || worker.Flush() != nil {
		t.Fatal(err)
	}
	if _, err := p.Submit(t.Context(), penstock.Job{Policy: "mail"}); err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		offer, err := offers.NextMsg(waittest.Patience())
		if err != nil {
			t.Fatal(err)
		}
		if err := worker.PublishRequest(offer.Reply, claims.Subject, []byte(
			`{"v":1,"op":"claim","want":"job","id":"x","n":1,"slots":1}`)); err != nil {
			t.Fatal(err)
		}
		started, err := claims.NextMsg(waittest.Patience())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(started.Header.Get("Penstock-Turn"), `"state":"go"`) {
			continue
		}
		answer, err := worker.Request(started.Reply,
			[]byte(`{"v":1,"op":"settle","id":"x","n":2,"status":"done"}`), waittest.Patience())
		if err != nil || !strings.Contains(string(answer.Data), `"state":"ok"`) {
			t.Fatalf("%+v, %v", answer, err)
		}
		done = true
	}
	if _, err := events.NextMsg(waittest.Patience()); err != nil {
		t.Errorf("the operator sees no event: %v", err)
	}
	caller := as("caller")
	client, err := penstock.NewNATSClient(caller, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Acquire(t.Context(), penstock.Call{Policy: "mail", Key: "a"}); err != nil {
		t.Errorf("a caller gets no permit: %v", err)
	}
	purged, err := caller.Request("penstock.claim.mail.0",
		[]byte(`{"v":1,"op":"purge","key":"a"}`), waittest.Patience())
	if err != nil || !strings.Contains(string(purged.Data), `"state":"error"`) {
		t.Errorf("a caller purges a bucket: %+v, %v", purged, err)
	}
	later, err := p.Submit(t.Context(), penstock.Job{Policy: "mail", Key: "later",
		NotBefore: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	client, err = penstock.NewNATSClient(operator, "")
	if err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "the operator cancels a job", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), waittest.Patience()/4)
		defer cancel()
		return client.Cancel(ctx, later.Job) == nil
	})
}
