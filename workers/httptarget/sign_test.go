package httptarget

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/internal/queue/inforce"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/queue"
	"github.com/penstock-mq/penstock/workers"
)

const signingKey = "a key that nobody else has"

func verify(r *http.Request, body []byte) error {
	var at int64
	var signature string
	if _, err := fmt.Sscanf(strings.Replace(r.Header.Get("Penstock-Signature"), ",v1=", " ", 1),
		"t=%d %s", &at, &signature); err != nil {
		return err
	}
	mac := hmac.New(sha256.New, []byte(signingKey))
	fmt.Fprintf(mac, "%d.%s", at, body)
	if given, err := hex.DecodeString(signature); err != nil || !hmac.Equal(given, mac.Sum(nil)) {
		return errors.New("another signature")
	}
	if age := time.Since(time.Unix(at, 0)); age < -time.Minute || age > 5*time.Minute {
		return fmt.Errorf("signed %s ago", age)
	}
	return nil
}

func TestRequestsAreSignedForPoliciesOfTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte(signingKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var served atomic.Int64
	base := serve(t, func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		body, _ := io.ReadAll(r.Body)
		if err := verify(r, body); err != nil {
			http.Error(w, err.Error(), http.StatusUnauthorized)
			return
		}
		if string(body) == "fail" {
			http.Error(w, "I do not like "+r.Header.Get("Penstock-Signature"), 400)
		}
	})
	handler := func(source, key string) workers.Handler {
		t.Helper()
		p := policy.Policy{Name: "p", Target: &policy.Target{HTTP: &policy.HTTPTarget{URL: base,
			Sign: &policy.Signing{HMACFile: key}}}}
		handle, err := New(Options{Client: Client()})(inforce.Entry{Policy: p,
			TargetSource: source})
		if err != nil {
			t.Fatal(err)
		}
		return handle
	}
	run := func(handle workers.Handler, body string) error {
		return handle(within(t), workers.Job{ID: "p:1", Policy: "p", Key: queue.Key("k"),
			Body: []byte(body)})
	}
	signed := handler(inforce.SourceFile, file)
	for _, body := range []string{"x", "", strings.Repeat("\x00", 100_000)} {
		if err := run(signed, body); err != nil {
			t.Errorf("%.10q: %v", body, err)
		}
	}
	if err := run(signed, "fail"); err == nil || strings.Contains(err.Error(), "v1=") {
		t.Errorf("a signature shows: %v", err)
	}
	before := served.Load()
	if err := run(handler(inforce.SourceAPI, file), "x"); err == nil ||
		served.Load() == before {
		t.Errorf("a policy of the API reads a file: %v", err)
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	before = served.Load()
	for _, bad := range []string{short, file + ".gone"} {
		if err := run(handler(inforce.SourceFile, bad), "x"); err == nil ||
			strings.Contains(err.Error(), "0123456789") || served.Load() != before {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
