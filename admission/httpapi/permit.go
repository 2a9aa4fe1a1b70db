package httpapi

import (
	"fmt"
	"strings"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/admission/access"
	"github.com/penstock-mq/penstock/policy"
)

// A job or dead letter named by number needs the right for all keys of its policy.
func (rt route) permits(at place) bool {
	switch {
	case rt.right == 0:
		return true
	case rt.each():
		return at.client.May(rt.right)
	case strings.HasSuffix(rt.path, "{key...}"), strings.Contains(rt.path, "{key...}?"):
		return at.client.MayKey(rt.right, at.policy, at.key.Raw())
	case strings.Contains(rt.path, "{"):
		return at.client.MayPolicy(rt.right, at.policy)
	}
	return at.client.MayAll(rt.right)
}

// It does not reveal whether the resource exists.
func notPermitted(rt route, at place) error {
	what := fmt.Sprintf("%s %s", rt.right, "for all policies and keys")
	switch {
	case rt.each():
		what = rt.right.String()
	case strings.Contains(rt.path, "{key...}"):
		what = fmt.Sprintf("%s for key %.64q of policy %.64q", rt.right, at.key.Raw(), at.policy)
	case strings.Contains(rt.path, "{"):
		what = fmt.Sprintf("%s for policy %.64q with all its keys", rt.right, at.policy)
	}
	return forbidden(at.client, what)
}

func forbidden(c *access.Client, what string) error {
	return fmt.Errorf("%w: the client %q has no right to %s", admission.ErrForbidden, c.Name, what)
}

func permitSubmit(c *access.Client, r admission.SubmitRequest) error {
	if c.MayKey(access.Submit, r.Policy, r.Key.Raw()) {
		return nil
	}
	return forbidden(c, fmt.Sprintf("submit for key %.64q of policy %.64q", r.Key.Raw(), r.Policy))
}

// within checks the right to write a policy. A NATS target publishes with the drainers' rights, and
// new callbacks are signed by another policy.
func within(c *access.Client) func(before, p policy.Policy) []policy.Problem {
	return func(before, p policy.Policy) []policy.Problem {
		var found []policy.Problem
		if p.Target != nil && p.Target.NATS != nil && !c.MayAll(access.Admin) {
			found = append(found, policy.Problem{Field: "target.nats",
				Reason: "needs the right admin for all policies, because it reaches them all"})
		}
		if through := p.Callbacks; through != "" && through != before.Callbacks &&
			!c.MayPolicy(access.Admin, through) {
			found = append(found, policy.Problem{Field: "callbacks", Reason: fmt.Sprintf(
				"needs the right admin for policy %.64q too, which signs what it posts", through)})
		}
		return found
	}
}
