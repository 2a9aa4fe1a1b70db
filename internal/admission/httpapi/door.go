package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/penstock-mq/penstock/admission"
	"github.com/penstock-mq/penstock/internal/admission/access"
	"github.com/penstock-mq/penstock/internal/admission/admit"
	"github.com/penstock-mq/penstock/internal/admission/answer"
	"github.com/penstock-mq/penstock/internal/queue/job"
)

// Brief reports whether a request is answered soon and in one piece, also if its client leaves.
func Brief(r *http.Request) bool {
	return r.Method == http.MethodPost && (strings.HasPrefix(r.URL.Path, checkPath) ||
		strings.HasPrefix(r.URL.Path, jobsPath) && r.URL.RawQuery == "" &&
			r.Header[admit.WaitHeader] == nil)
}

func (h *handler) submit(r *http.Request, at place) (answer.Answer, error) {
	wait, err := at.wait()
	if err != nil {
		return answer.Answer{}, err
	}
	if at.proxy != nil {
		return answer.Answer{}, at.proxy
	}
	body, held, err := h.read(r, at, admission.MaxBody)
	defer h.options.Budget.Release(at.from, held)
	if err != nil {
		return answer.Answer{}, bodyLeft{err}
	}
	outcome, err := h.service.Submit(r.Context(), admit.SubmitRequest{
		Policy: at.policy, Key: at.key, Header: r.Header, Body: body, IP: at.ip,
		From: at.from, Wait: wait})
	return h.submitted(outcome), err
}

func (at place) wait() (wait time.Duration, err error) {
	if at.query.Has("wait") {
		wait, err = admit.ParseWait("wait", at.query.Get("wait"))
	}
	return wait, err
}

func (h *handler) submitted(o admission.Outcome) answer.Answer {
	a := answer.Submitted(o)
	if o.Job != "" && h.options.Management != nil {
		a.Header = append(a.Header, answer.Field{Name: "Location", Value: jobsPath + o.Job})
	}
	return a
}

// bodyLeft leaves part of the body unread; the connection is closed.
type bodyLeft struct{ error }

func (b bodyLeft) Unwrap() error { return b.error }

// reserved before the first byte arrives
const smallBody = 4 << 10

// read reserves memory in the client's budget as the body grows.
func (h *handler) read(r *http.Request, at place, most int64) (body []byte, held int64,
	err error) {

	size := r.ContentLength
	if size < 0 {
		size = most + 1
	}
	for {
		if size > most && (r.ContentLength >= 0 || int64(len(body)) > most) {
			return nil, held, fmt.Errorf("%w: a body has at most %d bytes", admission.ErrTooLarge,
				most)
		}
		room := min(max(smallBody, 2*held), size)
		if err := h.options.Budget.Reserve(at.from, room-held); err != nil {
			return nil, held, err
		}
		held = room
		body = append(make([]byte, 0, room), body...)
		n, err := io.ReadFull(r.Body, body[len(body):room])
		body = body[:len(body)+n]
		switch {
		case r.ContentLength < 0 && (err == io.EOF || err == io.ErrUnexpectedEOF),
			err == nil && int64(len(body)) == r.ContentLength:
			return body, held, nil
		case err != nil:
			return nil, held, unread(err)
		}
	}
}

func unread(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%w: the body did not arrive in time", admit.ErrTooSlow)
	}
	return bad("body", "ended early or cannot be read")
}

func (h *handler) check(r *http.Request, at place) (answer.Answer, error) {
	options, err := admit.ReadCheckHeader(r.Header)
	if err != nil {
		return answer.Answer{}, err
	}
	if at.query.Has("cost") {
		if r.Header.Get(job.HeaderCost) != "" {
			return answer.Answer{}, bad("cost", "is given twice, as a parameter and as a header")
		}
		options.Cost, err = strconv.ParseInt(at.query.Get("cost"), 10, 64)
		if err != nil {
			return answer.Answer{}, bad("cost", "must be a whole number of at least 1")
		}
	}
	if at.proxy != nil {
		return answer.Answer{}, at.proxy
	}
	request := admit.CheckRequest{
		Policy: at.policy, Key: at.key, Cost: options.Cost, IP: cmp.Or(options.IP, at.ip),
	}
	ask := h.service.Check
	switch {
	case options.Refund && r.Method != http.MethodPost && r.Method != http.MethodDelete,
		options.Peek && r.Method == http.MethodDelete:
		return answer.Answer{}, bad("method", "contradicts the headers")
	case options.Refund || r.Method == http.MethodDelete:
		return answer.Refunded(), h.service.Refund(r.Context(), request)
	case options.Peek || r.Method != http.MethodPost:
		ask = h.service.Peek
	}
	checked, err := ask(r.Context(), request)
	return answer.Checked(checked), err
}

// client returns the address that limits apply to. Only a trusted proxy may name another one.
func (h *handler) client(remote string, header http.Header) (string, error) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = ""
	}
	if len(header[ipHeader]) > 0 {
		address, _ := netip.ParseAddr(host)
		address = address.Unmap().WithZone("")
		trusted := func(p netip.Prefix) bool { return p.Contains(address) }
		if !slices.ContainsFunc(h.options.TrustedProxies, trusted) {
			return "", bad(admit.IPHeader,
				"is accepted only from http.trusted_proxies, and %q is not one of them", host)
		}
	}
	return admit.ClientIP(host), nil
}

// Budgets count clients by name, or by address as seen by a trusted proxy.
func (h *handler) from(at *place, r *http.Request, c *access.Client) {
	at.client = c
	at.ip, at.proxy = h.client(r.RemoteAddr, r.Header)
	at.from = admit.Client{Name: cmp.Or(c.Name, at.ip),
		Operator: c.MayAll(access.Read | access.Operate | access.Admin)}
	if c.Name == "" && at.proxy == nil && len(r.Header[ipHeader]) > 0 {
		at.from.Name = admit.ClientIP(r.Header[ipHeader][0])
	}
}
