package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/internal/queue/job"
	"github.com/penstock-mq/penstock/internal/queue/roles"
)

type natsUsers struct {
	t     *testing.T
	dir   string
	file  string
	lines []string
}

func newNATSUsers(t *testing.T) *natsUsers {
	dir := t.TempDir()
	return &natsUsers{t: t, dir: dir, file: filepath.Join(dir, "users.yaml")}
}

func (u *natsUsers) add(name string, role roles.Role, more string) (seedFile string) {
	u.t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		u.t.Fatal(err)
	}
	public, err := pair.PublicKey()
	if err != nil {
		u.t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		u.t.Fatal(err)
	}
	u.lines = append(u.lines,
		fmt.Sprintf("  - {name: %s, role: %s, nkey: %s%s}", name, role, public, more))
	u.write()
	if err := os.WriteFile(u.seed(name), seed, 0o600); err != nil {
		u.t.Fatal(err)
	}
	return u.seed(name)
}

func (u *natsUsers) seed(name string) string { return filepath.Join(u.dir, name+".nk") }

func (u *natsUsers) write() {
	u.t.Helper()
	text := "users:\n" + strings.Join(u.lines, "\n") + "\n"
	if err := os.WriteFile(u.file, []byte(text), 0o600); err != nil {
		u.t.Fatal(err)
	}
}

func (u *natsUsers) as(url, name string) *nats.Conn {
	u.t.Helper()
	option, err := nats.NkeyOptionFromSeed(u.seed(name))
	if err != nil {
		u.t.Fatal(err)
	}
	nc, err := nats.Connect(url, option, nats.CustomInboxPrefix(roles.Inbox(name)),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(nc.Close)
	return nc
}

const closedPolicies = `
policies:
  - {name: mail, algorithm: leaking_bucket, outflow: 1000/s, capacity: 100}
  - {name: stripe, algorithm: leaking_bucket, outflow: 1000/s, capacity: 100}
  - {name: polite, algorithm: token_bucket, capacity: 100, refill: 100/s}
`

func denied(nc *nats.Conn) bool {
	_ = nc.FlushTimeout(waittest.Patience())
	err := nc.LastError()
	return err != nil && errors.Is(err, nats.ErrPermissionViolation)
}

func TestRolesOfTheEmbeddedServer(t *testing.T) {
	users := newNATSUsers(t)
	users.add("shop", roles.Producer, ", policies: [mail]")
	users.add("gate", roles.Checker, ", policies: [polite]")
	users.add("look", roles.Reader, ", policies: [mail]")
	users.add("runner", roles.Worker, ", policies: [mail]")
	users.add("caller", roles.Caller, ", policies: [mail]")
	users.add("ops", roles.Operator, ", policies: [mail]")
	drainerSeed := users.add("drain", roles.Drainer, "")
	admitterSeed := users.add("second", roles.Admitter, "")
	p := launch(t, "--config", configure(t, closedPolicies), "--nats-users", users.file).ready()

	if nc, err := nats.Connect(p.nats); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("nobody in particular gets %v, %v", nc, err)
	}
	// Other processes of the installation have their own seeds.
	t.Setenv("PENSTOCK_NATS_NKEY_FILE", drainerSeed)
	drainer := launchProgram(t, "drainer", "--nats-url", p.nats)
	if _, err := drainer.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PENSTOCK_NATS_NKEY_FILE", admitterSeed)
	second := launch(t, "--nats-url", p.nats, "--http-listen", "127.0.0.1:0").ready()
	t.Setenv("PENSTOCK_NATS_NKEY_FILE", "")

	shop, gate := users.as(p.nats, "shop"), users.as(p.nats, "gate")
	runner, ops := users.as(p.nats, "runner"), users.as(p.nats, "ops")
	asks := func(nc *nats.Conn, subject, status string) {
		t.Helper()
		m, err := nc.Request(subject, []byte("x"), waittest.Patience())
		if err != nil || m.Header.Get("Penstock-Status") != status {
			t.Errorf("%s: %+v, %v", subject, m, err)
		}
	}
	asks(shop, "penstock.submit.mail.k", "202")
	asks(gate, "penstock.check.polite.k", "200")
	asks(shop, "penstock.submit.mail.k", "202")
	look := users.as(p.nats, "look")
	for _, subject := range []string{"penstock.job.mail.1", "penstock.bucket.mail.k"} {
		m, err := look.Request(subject, nil, waittest.Patience())
		if err != nil || m.Header.Get("Penstock-Status") != "200" {
			t.Errorf("%s: %+v, %v", subject, m, err)
		}
	}
	second.posts("/v1/jobs/mail/k", "x", 202)
	events, err := ops.SubscribeSync("penstock.event.mail.>")
	if err != nil || ops.FlushTimeout(waittest.Patience()) != nil {
		t.Fatal(err)
	}

	offers, err := runner.QueueSubscribeSync("penstock.work.mail", "workers")
	if err != nil {
		t.Fatal(err)
	}
	claims, err := runner.SubscribeSync(roles.Inbox("runner") + ".claim")
	if err != nil {
		t.Fatal(err)
	}
	var valve string
	for done := 0; done < 3; {
		offer, err := offers.NextMsg(waittest.Patience())
		if err != nil {
			t.Fatal(err)
		}
		valve = strings.Split(offer.Reply, ".")[3]
		if err := runner.PublishRequest(offer.Reply, claims.Subject, []byte(
			`{"v":1,"op":"claim","want":"job","id":"x","n":1,"slots":1}`)); err != nil {
			t.Fatal(err)
		}
		started, err := claims.NextMsg(waittest.Patience())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(started.Header.Get(job.HeaderTurn), `"state":"go"`) {
			continue
		}
		answer, err := runner.Request(started.Reply,
			[]byte(`{"v":1,"op":"settle","id":"x","n":2,"status":"done"}`), waittest.Patience())
		if err != nil || !strings.Contains(string(answer.Data), `"state":"ok"`) {
			t.Fatalf("%+v, %v", answer, err)
		}
		done++
	}
	if _, err := events.NextMsg(waittest.Patience()); err != nil {
		t.Errorf("the operator hears nothing: %v", err)
	}
	t.Run("attacks", func(t *testing.T) { attackNATS(t, users, p, valve) })

	// A user that was removed from the file is disconnected; the others stay.
	users.lines = users.lines[1:]
	users.write()
	eventually(t, "the shop is locked out", func() bool { return !shop.IsConnected() })
	asks(gate, "penstock.check.polite.k", "200")
	second.posts("/v1/jobs/mail/k", "x", 202)
	if log := p.Log.String(); strings.Contains(log, "SU") && strings.Contains(log, "seed") {
		t.Errorf("the log has a seed:\n%s", log)
	}
}

// attackNATS tries, as each user, operations beyond its role. The server must refuse them, and
// requests with foreign reply subjects must have no effect.
func attackNATS(t *testing.T, users *natsUsers, p *process, valve string) {
	const victim = "penstock.jobs.stripe.victim"
	root := users.as(p.nats, "second")
	kept, err := root.Request(victim, []byte("the victim's"), waittest.Patience())
	if err != nil || !strings.Contains(string(kept.Data), `"seq":1`) {
		t.Fatal(kept, err)
	}
	// what must stay: the policies, and the queue with its one job
	state := func() (text string) {
		t.Helper()
		for _, stream := range []string{"PENSTOCK_stripe", "KV_PENSTOCK_POLICIES"} {
			m, err := root.Request("$JS.API.STREAM.INFO."+stream, nil, waittest.Patience())
			if err != nil {
				t.Fatal(err)
			}
			var info struct {
				State struct{ Messages, Last_seq uint64 }
			}
			if err := json.Unmarshal(m.Data, &info); err != nil || info.State.Messages == 0 {
				t.Fatalf("%s, %v", m.Data, err)
			}
			text += fmt.Sprintln(stream, info.State)
		}
		return text
	}
	before := state()

	type attack struct{ user, verb, subject string }
	var attacks []attack
	for _, user := range []string{"shop", "gate", "look", "runner", "caller", "ops"} {
		for _, subject := range []string{
			"penstock.queue.mail.0.k",
			victim,
			"penstock.submit.stripe.k", //
			"penstock.job.stripe.1",    //
			"penstock.bucket.stripe.k", //
			"penstock.admitted.mail.k",
			"penstock.dead.mail.k",
			"penstock.event.mail.k",
			"penstock.valve.mail.0",   // cancels and purges
			"penstock.valve.stripe.0", //
			"penstock.work.mail",
			"penstock.claim.stripe.0",
			"penstock.claim.stripe." + valve + ".r1",      // ends another's job
			"penstock.outcome.ABCDEFGHIJKLMNOPQRSTUVWXYZ", // the same, for a waiting submitter
			"$JS.API.STREAM.PURGE.PENSTOCK_mail",          //
			"$JS.API.STREAM.DELETE.PENSTOCK_stripe",
			"$JS.API.STREAM.MSG.GET.PENSTOCK_stripe",
			"$JS.API.STREAM.MSG.DELETE.PENSTOCK_stripe",
			"$JS.API.DIRECT.GET.PENSTOCK_stripe",
			"$JS.API.STREAM.UPDATE.PENSTOCK_mail",
			"$JS.API.STREAM.CREATE.EVIL",
			"$JS.API.STREAM.SNAPSHOT.PENSTOCK_stripe",
			"$JS.API.CONSUMER.CREATE.PENSTOCK_stripe.evil",
			"$JS.API.CONSUMER.DELETE.PENSTOCK_mail.valve-0-1",
			"$JS.API.CONSUMER.MSG.NEXT.PENSTOCK_mail.valve-0-1",
			"$JS.ACK.PENSTOCK_mail.valve-0-1.1.1.1.1.0",
			"$KV.PENSTOCK_POLICIES.mail",
			"$KV.PENSTOCK_PARTITIONS.mail.0",
			"$SYS.REQ.SERVER.PING",
			"_INBOX.victim.1",
		} {
			attacks = append(attacks, attack{user, "publish", subject})
		}
		for _, subject := range []string{">", "penstock.>", "penstock.jobs.>", "penstock.queue.>",
			"penstock.submit.>", "penstock.event.>", "penstock.event.stripe.>", "_INBOX.>",
			"_INBOX.*.>", "$JS.>", "$KV.>", "$SYS.>", "$SRV.>", "penstock.claim.>",
			"penstock.claim.mail.*", "penstock.work.stripe", "penstock.valve.>",
			"penstock.outcome.>"} {
			attacks = append(attacks, attack{user, "subscribe", subject})
		}
	}
	for _, user := range []string{"shop", "gate", "look", "caller", "ops"} {
		attacks = append(attacks, attack{user, "publish", "penstock.claim.mail." + valve + ".r1"})
	}
	for _, a := range attacks {
		nc := users.as(p.nats, a.user)
		if a.verb == "publish" {
			err = nc.PublishRequest(a.subject, roles.Inbox(a.user)+".x", nil)
		} else {
			_, err = nc.SubscribeSync(a.subject)
		}
		if err != nil || !denied(nc) {
			t.Errorf("%s may %s %s: %v, %v", a.user, a.verb, a.subject, err, nc.LastError())
		}
		nc.Close()
	}

	// Processes must not publish to these reply subjects.
	replies := []string{"$JS.API.STREAM.PURGE.PENSTOCK_stripe", "$KV.PENSTOCK_POLICIES.mail",
		"$JS.API.STREAM.DELETE.PENSTOCK_stripe", "penstock.jobs.stripe.k",
		"penstock.queue.stripe.0.k", "penstock.valve.stripe.0", "penstock.claim.stripe.0"}
	through := map[string]string{"shop": "penstock.submit.mail.k",
		"gate":   "penstock.check.polite.k",
		"look":   "penstock.job.mail.1",
		"caller": "penstock.claim.mail.0",
		"runner": "penstock.claim.mail." + valve + ".r1"}
	for user, subject := range through {
		nc := users.as(p.nats, user)
		for _, reply := range replies {
			if err := nc.PublishRequest(subject, reply, nil); err != nil {
				t.Error(err)
			}
		}
		// A permitted reply subject follows the forbidden ones.
		if m, err := nc.Request(subject, nil, waittest.Patience()); err != nil {
			t.Errorf("%s: %+v, %v", user, m, err)
		}
	}
	if after := state(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	got, err := root.Request("$JS.API.DIRECT.GET.PENSTOCK_stripe", []byte(`{"seq":1}`),
		waittest.Patience())
	if err != nil || string(got.Data) != "the victim's" {
		t.Errorf("the victim's job: %+v, %v", got, err)
	}
}
