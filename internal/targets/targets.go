// Package targets runs the jobs of policies with a target, whatever kind it is.
package targets

import (
	"net/netip"
	"net/url"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/reach"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
	"github.com/penstock-mq/penstock/workers/httptarget"
	"github.com/penstock-mq/penstock/workers/natstarget"
)

// New returns the handler of a policy's target, nil for a policy without one. It is what
// [workers.Options.Target] wants. The prefix is that of the installation's subjects. Allow are
// networks that HTTP targets may be in whatever they are: see [httptarget.Options].
func New(nc *nats.Conn, prefix string,
	allow []netip.Prefix) func(policy.Entry) (workers.Handler, error) {
	kinds := []func(policy.Entry) (workers.Handler, error){
		httptarget.New(httptarget.Options{Allow: allow}),
		natstarget.New(nc, prefix),
	}
	return func(entry policy.Entry) (workers.Handler, error) {
		for _, kind := range kinds {
			if handle, err := kind(entry); handle != nil || err != nil {
				return handle, err
			}
		}
		return nil, nil
	}
}

// Callback returns what says why no outcome may be posted to a URL, as far as it tells that: names
// are looked up when it is posted, and nothing is where it may not be.
func Callback(allow []netip.Prefix) func(*url.URL) error {
	return func(to *url.URL) error { return reach.Rules{Allow: allow}.CheckHost(to.Hostname()) }
}

// Possible says what a policy that comes through the API may not have: a target at an address that
// only the operator's own file may name, as far as the URL tells it, and headers or keys from
// files.
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
	if len(p.Target.HTTP.Headers) > 0 {
		problems = append(problems, policy.Problem{Field: "target.http.headers",
			Reason: "are for policies of the operator's file: they read files of the drainers"})
	}
	if p.Target.HTTP.Sign != nil {
		problems = append(problems, policy.Problem{Field: "target.http.sign",
			Reason: "is for policies of the operator's file: it reads a file of the drainers"})
	}
	return problems
}
