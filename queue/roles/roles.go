// Package roles says what each kind of client needs of NATS, and so what it may be permitted: one
// table, from which the embedded server's users, deploy/nats and the tests of both are made.
package roles

import (
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/policy"
)

// Role is a kind of client.
type Role string

// The roles.
const (
	Producer Role = "producer" // hands in jobs, by asking an admitter
	Checker  Role = "checker"  // takes from limits, looks at them and gives back
	Reader   Role = "reader"   // asks how jobs and buckets stand
	Worker   Role = "worker"   // runs jobs that drainers offer, by docs/workers-protocol.md
	Operator Role = "operator" // hears events
	Drainer  Role = "drainer"  // owns partitions and starts jobs
	Admitter Role = "admitter" // answers requests and writes policies; also with a drainer inside
)

// All are the roles.
var All = []Role{Producer, Checker, Reader, Worker, Operator, Drainer, Admitter}

// Permissions are the subjects that a user may publish and subscribe to, and no others.
type Permissions struct{ Publish, Subscribe []string }

// Of returns the permissions of a user with a role: for the policies that are named, "*" for all,
// of the installation with a prefix. Answers come to the user's own inbox, which is [Inbox] of its
// name: _INBOX.> would show it the answers to all others, jobs among them.
//
// Nobody who is not trusted with everything may publish to a stream or to the server's API: a
// request names the subject of its answer, and the server sends that answer to any subject, with no
// look at what the client may publish to. So an acknowledgement of JetStream's could be made to
// overwrite a policy. What admitters and drainers answer goes to no such subject
// (queue.Names.IsReply). Producers that publish to penstock.jobs belong into an account of their
// own: deploy/nats/roles.conf.
func Of(role Role, prefix, user string, policies []string) Permissions {
	inbox := []string{Inbox(user) + ".>"}
	each := func(words ...string) []string {
		var subjects []string
		for _, word := range words {
			for _, policy := range policies {
				subjects = append(subjects, prefix+"."+fmt.Sprintf(word, policy))
			}
		}
		return subjects
	}
	switch role {
	case Producer:
		return Permissions{Publish: each("submit.%s.>"), Subscribe: inbox}
	case Checker:
		return Permissions{Publish: each("check.%s.>"), Subscribe: inbox}
	case Reader:
		return Permissions{Publish: each("job.%s.*", "bucket.%s.>"), Subscribe: inbox}
	case Worker:
		return Permissions{Publish: each("answer.%s.>"),
			Subscribe: append(each("work.%s"), inbox...)}
	case Operator:
		return Permissions{Subscribe: each("event.%s.>")}
	case Drainer:
		return Permissions{
			Publish:   []string{prefix + ".>", "$JS.API.>", "$JS.ACK.>", "$KV.>", "_INBOX.>"},
			Subscribe: []string{prefix + ".>", "_INBOX.>"}}
	case Admitter:
		p := Of(Drainer, prefix, user, policies)
		p.Subscribe = append(p.Subscribe, "$SRV.>")
		p.Publish = append(p.Publish, "$JS.SNAPSHOT.>") // backups, and restores
		return p
	}
	return Permissions{}
}

// Inbox begins the subjects on which a user hears answers, as [nats.CustomInboxPrefix] takes it.
func Inbox(user string) string { return "_INBOX." + user }

// Check returns what is wrong with a role and its policies.
func Check(role Role, policies []string) error {
	if !slices.Contains(All, role) {
		return fmt.Errorf("role %.32q: want one of %v", role, All)
	}
	if role == Drainer || role == Admitter {
		if len(policies) > 0 {
			return fmt.Errorf("a role %s has no policies: it owns all", role)
		}
		return nil
	}
	if len(policies) == 0 {
		return fmt.Errorf("policies are missing: names, or \"*\" for all")
	}
	for _, name := range policies {
		if name != "*" && !policy.IsName(name) {
			return fmt.Errorf("policy %.64q: want a name, or \"*\" for all: NATS knows no other "+
				"patterns", name)
		}
	}
	return nil
}

// CheckUser returns what is wrong with the name of a user, which is a token of its inbox.
func CheckUser(name string) error {
	bad := func(c rune) bool {
		return !strings.ContainsRune("-_", c) && (c < '0' || c > '9') && (c < 'a' || c > 'z') &&
			(c < 'A' || c > 'Z')
	}
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, bad) {
		return fmt.Errorf("user %.80q: want 1 to 64 letters, digits, - and _", name)
	}
	return nil
}
