package penstock_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock"
	"github.com/penstock-mq/penstock/internal/kit/waittest"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
)

// sealing returns a codec that encrypts with AES-GCM and puts the nonce in front of each payload.
func sealing(key []byte) (penstock.Codec, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return penstock.Codec{}, err
	}
	gcm, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return penstock.Codec{}, err
	}
	return penstock.Codec{
		Encode: func(plain []byte) ([]byte, error) { return gcm.Seal(nil, nil, plain, nil), nil },
		Decode: func(sealed []byte) ([]byte, error) { return gcm.Open(nil, nil, sealed, nil) },
	}, nil
}

// Payloads are encrypted between submitters and handlers: NATS, backups and the console have only
// ciphertext.
func ExampleCodec() {
	codec, err := sealing([]byte("an AES key of 32 bytes from a KMS")[:32])
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p, err := penstock.Open(ctx, penstock.Options{Codec: codec,
		Policies: []policy.Policy{paced("mail", 100, 10)}})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	p.Handle("mail", func(_ context.Context, job workers.Job) error {
		fmt.Printf("to %s\n", job.Body)
		stop()
		return nil
	})
	if _, err := p.Submit(ctx, penstock.Job{Policy: "mail", Body: []byte("ann")}); err != nil {
		log.Fatal(err)
	}
	if err := p.Run(ctx); err != nil {
		log.Fatal(err)
	}
	// Output: to ann
}

func TestPayloadsAreEncodedBetweenSubmitterAndHandler(t *testing.T) {
	codec, err := sealing([]byte(rand.Text()[:16]))
	if err != nil {
		t.Fatal(err)
	}
	type payload struct {
		encoding string
		body     []byte
	}
	requests := make(chan payload, 10)
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- payload{r.Header.Get("Content-Encoding"), body}
	}))
	defer target.Close()
	out := paced("out", 1000, 10)
	out.Target = &policy.Target{HTTP: &policy.HTTPTarget{URL: target.URL}}
	p := open(t, penstock.Options{Codec: codec, ServeNATS: true,
		Policies:     []policy.Policy{paced("mail", 1000, 10), out},
		AllowTargets: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	bodies := make(chan string, 10)
	p.Handle("mail", func(_ context.Context, j workers.Job) error {
		bodies <- string(j.Body)
		j.Reply(0, nil, append([]byte("a reply to "), j.Body...))
		return nil
	})
	run(t, p)

	submitters := map[string]interface {
		Submit(context.Context, penstock.Job) (penstock.Ticket, error)
	}{"Penstock": p}
	for name, c := range clients(t, p) {
		c.Codec = codec
		submitters[name] = c
	}
	const secret = "4111 1111 1111 1111"
	for name, by := range submitters {
		j := penstock.Job{Policy: "mail", Key: name, IdempotencyKey: "1", Body: []byte(secret),
			Wait: waittest.Patience()}
		ticket, err := by.Submit(t.Context(), j)
		if err != nil || ticket.Result == nil || waittest.Receive(t, bodies) != secret ||
			string(ticket.Result.Reply.Body) != "a reply to "+secret {
			t.Errorf("%s: %+v, %v", name, ticket, err)
		}
		if again, err := by.Submit(t.Context(), j); err != nil || !again.Duplicate {
			t.Errorf("%s: a repeat, which has another ciphertext: %+v, %v", name, again, err)
		}
		j.Policy = "out"
		if _, err := by.Submit(t.Context(), j); err != nil {
			t.Error(err)
		}
		sent := waittest.Receive(t, requests)
		if plain, err := codec.Decode(sent.body); sent.encoding != queue.Encoding || err != nil ||
			string(plain) != secret || bytes.Contains(sent.body, []byte(secret)) {
			t.Errorf("%s: the target got %q, %v", name, sent, err)
		}
		j.Header = http.Header{"Content-Encoding": {"gzip"}}
		if ticket, err := by.Submit(t.Context(), j); err == nil {
			t.Errorf("%s: two encodings: %+v", name, ticket)
		}
	}
	plain, err := penstock.NewNATSClient(connected(t, p), "")
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := plain.Submit(t.Context(), penstock.Job{Policy: "mail", Body: []byte("plain"),
		Wait: waittest.Patience()})
	if err != nil || waittest.Receive(t, bodies) != "plain" ||
		string(ticket.Result.Reply.Body) != "a reply to plain" {
		t.Errorf("without a codec: %+v, %v", ticket, err)
	}
}

func TestAWorkerWithoutACodecLeavesEncodedJobsToOthers(t *testing.T) {
	codec, err := sealing([]byte(rand.Text()[:16]))
	if err != nil {
		t.Fatal(err)
	}
	p := open(t, penstock.Options{Codec: codec, Policies: []policy.Policy{paced("mail", 1000, 10)},
		AdmitOnly: true})
	run(t, p)
	submitted := penstock.Job{Policy: "mail", Body: []byte("ann")}
	ticket, err := p.Submit(t.Context(), submitted)
	if err != nil {
		t.Fatal(err)
	}
	bodies := make(chan string, 10)
	work := func(c penstock.Codec) func() {
		d, err := workers.New(connected(t, p), workers.Options{Codec: c})
		if err != nil {
			t.Fatal(err)
		}
		d.Handle("mail", func(_ context.Context, j workers.Job) error {
			bodies <- string(j.Body)
			return nil
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		return func() {
			stop()
			if err := waittest.Receive(t, ended); err != nil {
				t.Error(err)
			}
		}
	}
	said := func(text string) {
		waittest.Until(t, "the job says "+text, func() bool {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/v1/jobs/"+ticket.Job, nil)
			r.Host = "localhost"
			p.Handler().ServeHTTP(w, r)
			return strings.Contains(w.Body.String(), text)
		})
	}
	stop := work(penstock.Codec{})
	said("no Codec.Decode is set")
	stop()
	stop = work(penstock.Codec{Decode: func([]byte) ([]byte, error) {
		return nil, errors.New("the key is not here")
	}})
	said("decode the payload: the key is not here")
	stop()
	defer work(codec)()
	if body := waittest.Receive(t, bodies); body != "ann" {
		t.Errorf("a handler got %q", body)
	}
}
