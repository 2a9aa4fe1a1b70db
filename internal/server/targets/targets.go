// Package targets runs the jobs of policies with a target of any kind.
package targets

import (
	"net/netip"
	"net/url"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/base/reach"
	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/httptarget"
	"github.com/penstock-mq/penstock/workers/natstarget"
)

// New returns the handler of a policy's target, for [workers.Options.Target]; nil without one.
func New(nc *nats.Conn, prefix string,
	allow []netip.Prefix) func(inforce.Entry) (workers.Handler, error) {
	kinds := []func(inforce.Entry) (workers.Handler, error){
		httptarget.New(httptarget.Options{Allow: allow}),
		natstarget.New(nc, prefix),
	}
	return func(entry inforce.Entry) (workers.Handler, error) {
		for _, kind := range kinds {
			if handle, err := kind(entry); handle != nil || err != nil {
				return handle, err
			}
		}
		return nil, nil
	}
}

// Callback checks callback URLs without looking up names.
func Callback(allow []netip.Prefix) func(*url.URL) error {
	return func(to *url.URL) error { return reach.Rules{Allow: allow}.CheckHost(to.Hostname()) }
}

// Possible returns why a policy from the API is forbidden: its URL shows a target reserved for the
// operator's file, or it has credentials from files.
func Possible(p policy.Policy, allow []netip.Prefix) []policy.Problem {
	if p.Target == nil || p.Target.HTTP == nil {
		return nil
	}
	var problems []policy.Problem
	if u, err := url.Parse(p.Target.HTTP.URL); err == nil {
		if err := (reach.Rules{Allow: allow}).CheckHost(u.Hostname()); err != nil {
			problems = append(problems,
				policy.Problem{Field: "target.http.url", Reason: err.Error()})
		}
	}
	for _, field := range p.Target.HTTP.FromFiles() {
		problems = append(problems, policy.Problem{Field: "target.http." + field,
			Reason: "is permitted only in the configuration file: it names drainers' files"})
	}
	return problems
}
