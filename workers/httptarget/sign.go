package httptarget

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/penstock-mq/penstock/policy"
	"github.com/penstock-mq/penstock/workers"
)

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
