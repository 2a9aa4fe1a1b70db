// Package roles has the NATS permissions of each kind of client, for the embedded server,
// deploy/nats and tests.
package roles

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/penstock-mq/penstock/policy"
)

// Role is what a NATS user may do.
type Role string

const (
	Producer Role = "producer" // submits jobs to an admitter
	Checker  Role = "checker"  // checks limits
	Caller   Role = "caller"   // makes permitted calls itself
	Reader   Role = "reader"   // queries jobs and buckets
	Worker   Role = "worker"   // runs jobs: docs/workers-protocol.md
	Operator Role = "operator" // receives events, and cancels jobs
	Drainer  Role = "drainer"  // owns partitions and starts jobs
	Admitter Role = "admitter" // answers requests; may have a drainer inside
)

// All are all roles.
var All = []Role{Producer, Checker, Caller, Reader, Worker, Operator, Drainer, Admitter}

// Permissions are subjects; all others are denied.
type Permissions struct{ Publish, Subscribe []string }

// Of returns a role's permissions for policies ("*": all) of the installation with a prefix.
// Answers go to the user's [Inbox]: at _INBOX.> it could read others' answers, with their jobs.
//
// Only trusted users may publish to a stream or to the server's API: the server answers at any
// subject that a request names, so an acknowledgement could overwrite a policy. Admitters and
// drainers refuse such subjects (jet.Names.IsReply). Producers that publish to penstock.jobs need
// a separate account: deploy/nats/roles.conf.
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
	case Caller:
		return Permissions{Publish: each("claim.%s.*"), Subscribe: inbox}
	case Reader:
		return Permissions{Publish: each("job.%s.*", "bucket.%s.>"), Subscribe: inbox}
	case Worker:
		return Permissions{Publish: each("claim.%s.>"),
			Subscribe: append(each("work.%s"), inbox...)}
	case Operator:
		return Permissions{Publish: each("cancel.%s.*"),
			Subscribe: append(each("event.%s.>"), inbox...)}
	case Drainer:
		return Permissions{
			Publish:   []string{prefix + ".>", "$JS.API.>", "$JS.ACK.>", "$KV.>", "_INBOX.>"},
			Subscribe: []string{prefix + ".>", "_INBOX.>"}}
	case Admitter:
		p := Of(Drainer, prefix, user, policies)
		p.Subscribe = append(p.Subscribe, "$SRV.>")
		p.Publish = append(p.Publish, "$JS.SNAPSHOT.>") // backups
		return p
	}
	return Permissions{}
}

// Inbox is the prefix of a user's reply subjects, for [nats.CustomInboxPrefix].
func Inbox(user string) string { return "_INBOX." + user }

// Check reports an unknown role, and policies that do not fit the role.
func Check(role Role, policies []string) error {
	if !slices.Contains(All, role) {
		return fmt.Errorf("role: %.32q: want one of %v", role, All)
	}
	if role == Drainer || role == Admitter {
		if len(policies) > 0 {
			return fmt.Errorf("a role %s has no policies: it owns all", role)
		}
		return nil
	}
	if len(policies) == 0 {
		return errors.New("policies: want names, or \"*\" for all")
	}
	for _, name := range policies {
		if name != "*" && !policy.IsName(name) {
			return fmt.Errorf("policy %.64q: want a name, or \"*\" for all: NATS knows no other "+
				"patterns", name)
		}
	}
	return nil
}

// CheckUser refuses a name that cannot be a token of an inbox.
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
