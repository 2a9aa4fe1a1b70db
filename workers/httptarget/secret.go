package httptarget

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/penstock-mq/penstock/internal/base/clienttls"
	"github.com/penstock-mq/penstock/internal/server/follow"
	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

// mostSecret bounds a secret file, in bytes.
const mostSecret = 16 << 10

// secret is a header field with a value from a file.
type secret struct {
	name, file string

	mu    sync.Mutex
	value string
	watch *follow.Watch // since before the read; nil: unread
}

func newSecrets(headers policy.TargetHeaders) []*secret {
	var secrets []*secret
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		secrets = append(secrets, &secret{name: name, file: headers[name].File})
	}
	return secrets
}

func (s *secret) add(header http.Header) error {
	value, err := s.read()
	if err != nil {
		return fmt.Errorf("header %s of the target: %w", s.name, err)
	}
	header.Set(s.name, value)
	return nil
}

// marked marks an error about files of TLS. A mistake on the drainer's machine must not cost the
// job attempts.
func marked(err error) error {
	if _, own := errors.AsType[*clienttls.FileError](err); own {
		return workers.Misconfigured(err)
	}
	return err
}

// read returns errors marked by [workers.Misconfigured].
func (s *secret) read() (string, error) {
	value, err := s.current()
	return value, workers.Misconfigured(err)
}

func (s *secret) current() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watch != nil && !s.watch.Stale() {
		return s.value, nil
	}
	s.watch = nil
	watch := follow.Watching(s.file)
	info, err := os.Stat(s.file)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", s.file)
	}
	file, err := os.Open(s.file)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, mostSecret+1))
	if err != nil {
		return "", err
	}
	value := strings.TrimRight(string(content), "\r\n")
	switch {
	case len(content) > mostSecret:
		return "", fmt.Errorf("%s is larger than %d bytes", s.file, mostSecret)
	case value == "":
		return "", fmt.Errorf("%s is empty", s.file)
	case strings.ContainsFunc(value, control):
		return "", fmt.Errorf("%s holds control characters, which no header can carry", s.file)
	}
	s.value, s.watch = value, watch
	return value, nil
}

// signatureHeader has the time of a request and its signature: t=1795341600,v1=5257a8….
const signatureHeader = "Penstock-Signature"

// leastKey is the least length of signing keys, in bytes.
const leastKey = 16

func newKey(s *policy.Signing) *secret {
	if s == nil {
		return nil
	}
	return &secret{name: signatureHeader, file: s.HMACFile}
}

// sign adds the HMAC-SHA256 of the Unix time, a dot and the body.
func (s *secret) sign(header http.Header, body []byte, now time.Time) error {
	key, err := s.read()
	if err == nil && len(key) < leastKey {
		err = workers.Misconfigured(fmt.Errorf("%s holds less than %d bytes", s.file, leastKey))
	}
	if err != nil {
		return fmt.Errorf("key of the target's signatures: %w", err)
	}
	at := strconv.FormatInt(now.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(at + "."))
	mac.Write(body)
	header.Set(signatureHeader, "t="+at+",v1="+hex.EncodeToString(mac.Sum(nil)))
	return nil
}
