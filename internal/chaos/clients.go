//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/penstock-mq/penstock/internal/admission/permits"
	"github.com/penstock-mq/penstock/internal/queue/jet"
	"github.com/penstock-mq/penstock/queue"
)

const clientPatience = 6 * time.Second

type clients struct {
	w       *world
	names   jet.Names
	nc      *nats.Conn
	http    *http.Client
	calls   *http.Client
	permits *permits.Client

	slots chan struct{}
	count int64
	mu    sync.Mutex
}

// others are skipped
const maxUnderWay = 400

func newClients(w *world) (*clients, error) {
	names, err := jet.NewNames("")
	if err != nil {
		return nil, err
	}
	urls := ""
	for _, p := range w.ports {
		urls += ",nats://penstock:" + password + "@" + address(p.client)
	}
	nc, err := nats.Connect(urls[1:], nats.Name("chaos"), nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(2*time.Second),
		nats.RetryOnFailedConnect(true),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}))
	if err != nil {
		return nil, err
	}
	over, err := permits.New(nc, names)
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &clients{w: w, names: names, nc: nc, permits: over,
		slots: make(chan struct{}, maxUnderWay),
		http: &http.Client{Timeout: clientPatience,
			Transport: &http.Transport{MaxIdleConnsPerHost: 64}},
		calls: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}, nil
}

func (c *clients) publish(ctx context.Context) {
	var all sync.WaitGroup
	stream := uint64(0)
	for _, rule := range c.w.history.rules {
		for key := range rule.keys {
			stream++
			r := rand.New(rand.NewPCG(c.w.seed, stream))
			all.Go(func() {
				for {
					gap := r.ExpFloat64() / rule.offered
					if !pause(ctx, time.Duration(min(gap, 30)*float64(time.Second))) {
						return
					}
					s, how := c.draw(r, rule, key)
					select {
					case c.slots <- struct{}{}:
					default:
						continue
					}
					all.Go(func() {
						defer func() { <-c.slots }()
						c.submit(s, how)
					})
				}
			})
		}
	}
	all.Wait()
}

type way struct {
	over     string
	admitter int
}

func (c *clients) draw(r *rand.Rand, rule rule, key int) (submission, way) {
	c.mu.Lock()
	c.count++
	n := c.count
	c.mu.Unlock()
	s := submission{bucket: bucket{rule.name, "k" + strconv.Itoa(key)}}
	s.name = fmt.Sprintf("%s/%d", s.bucket, n)
	how := way{admitter: r.IntN(admitters)}
	switch luck := r.IntN(100); {
	case luck < 55:
		how.over = "http"
	case luck < 75 || rule.door:
		how.over = "nats"
	default:
		how.over = "straight"
	}
	if r.IntN(20) == 0 {
		s.priority = r.IntN(3) - 1
	}
	if r.IntN(50) == 0 {
		s.deadline = time.Duration(2+r.IntN(20)) * time.Second
	}
	return s, how
}

func (c *clients) submit(s submission, how way) {
	header := nats.Header{}
	if s.priority != 0 {
		header.Set("Penstock-Priority", strconv.Itoa(s.priority))
	}
	if s.deadline != 0 {
		header.Set("Penstock-Deadline", s.deadline.String())
	}
	s.sent = c.w.now()
	switch how.over {
	case "http":
		c.overHTTP(&s, how.admitter, header)
	case "nats":
		c.overNATS(&s, header)
	default:
		c.straight(&s, header)
	}
	s.answered = c.w.now()
	c.w.history.submitted(s)
}

func (c *clients) overHTTP(s *submission, admitter int, header nats.Header) {
	url := fmt.Sprintf("http://%s/v1/jobs/%s/%s", address(c.w.ports[admitter].http), s.policy,
		s.key)
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(s.name))
	if err != nil {
		panic(err)
	}
	for name := range header {
		request.Header.Set(name, header.Get(name))
	}
	response, err := c.http.Do(request)
	if err != nil {
		return
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil {
		s.told(response.StatusCode, body)
	}
}

func (c *clients) overNATS(s *submission, header nats.Header) {
	answer, err := c.nc.RequestMsg(&nats.Msg{Subject: "penstock.submit." + s.policy + "." + s.key,
		Header: header,
		Data:   []byte(s.name)}, clientPatience)
	if err != nil {
		return
	}
	if status, err := strconv.Atoi(answer.Header.Get("Penstock-Status")); err == nil {
		s.told(status, answer.Data)
	}
}

const codeFull = 10077

// After a 503 the job may run all the same.
func (s *submission) told(status int, body []byte) {
	s.status = status
	switch {
	case status == http.StatusAccepted:
		var is struct{ Job string }
		if json.Unmarshal(body, &is) == nil && is.Job != "" {
			s.answer, s.job = accepted, is.Job
		}
	case status == http.StatusInsufficientStorage || status >= 400 && status < 500:
		s.answer = refused
	}
}

func (c *clients) straight(s *submission, header nats.Header) {
	answer, err := c.nc.RequestMsg(&nats.Msg{Subject: c.names.Jobs(s.policy, queue.Key(s.key)),
		Header: header,
		Data:   []byte(s.name)}, clientPatience)
	if err != nil {
		return
	}
	var ack struct {
		Seq   uint64
		Error *struct {
			Code        int `json:"err_code"`
			Description string
		}
	}
	switch err := json.Unmarshal(answer.Data, &ack); {
	case err != nil:
	case ack.Error != nil:
		s.status = ack.Error.Code
		if strings.HasPrefix(ack.Error.Description, "maximum ") {
			s.answer = refused
		}
	case ack.Seq != 0:
		s.answer, s.job, s.status = accepted, s.policy+":"+
			strconv.FormatUint(ack.Seq, 10), http.StatusAccepted
	}
}

type streamInfo struct {
	State struct {
		Messages int
		Subjects map[string]int
	}
	Error any
}

func (c *clients) look(policy string) (info streamInfo, ok bool) {
	answer, err := c.nc.Request("$JS.API.STREAM.INFO."+c.names.Stream(policy),
		[]byte(`{"subjects_filter":">"}`), 2*time.Second)
	return info, err == nil && json.Unmarshal(answer.Data, &info) == nil && info.Error == nil
}

func (c *clients) watch(ctx context.Context) {
	for pause(ctx, 500*time.Millisecond) {
		for _, rule := range c.w.history.rules {
			info, ok := c.look(rule.name)
			if !ok {
				continue
			}
			at := c.w.now()
			for subject, jobs := range info.State.Subjects {
				if _, key, err := c.names.ParseQueue(subject); err == nil {
					c.w.history.held(depth{bucket{rule.name, string(key)}, at, jobs})
				}
			}
		}
	}
}

func (c *clients) drained(ctx context.Context) map[string]int {
	left := map[string]int{}
	for _, rule := range c.w.history.rules {
		left[rule.name] = -1
	}
	for len(left) > 0 {
		for name := range left {
			if info, ok := c.look(name); ok {
				left[name] = info.State.Messages
				if info.State.Messages == 0 {
					delete(left, name)
				}
			}
		}
		if len(left) > 0 && !pause(ctx, 250*time.Millisecond) {
			return left
		}
	}
	return left
}

func (c *clients) letters(ctx context.Context) error {
	h := c.w.history
	for _, rule := range h.rules {
		after := uint64(0)
		for more := true; more; {
			url := fmt.Sprintf("http://%s/v1/dead/%s?limit=500&after=%d",
				address(c.w.ports[0].http), rule.name, after)
			var page struct {
				Letters []struct {
					ID               uint64
					Key, Job, Reason string
					Attempts         int
					DeadAt           time.Time `json:"dead_at"`
				}
				Next uint64
			}
			if err := c.get(ctx, url, &page); err != nil {
				return err
			}
			for _, l := range page.Letters {
				h.letters = append(h.letters,
					letter{bucket{rule.name, l.Key}, l.Job, l.Reason, l.Attempts,
						l.DeadAt.Sub(c.w.began)})
				after = l.ID
			}
			more = page.Next != 0
		}
	}
	return nil
}

func (c *clients) get(ctx context.Context, url string, into any) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := c.http.Do(request)
		if err == nil {
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode == http.StatusOK {
				return json.Unmarshal(body, into)
			}
		}
		if !pause(ctx, 200*time.Millisecond) {
			return fmt.Errorf("%s: no answer in time", url)
		}
	}
}
