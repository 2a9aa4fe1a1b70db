package natstarget

import (
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/penstock-mq/penstock/internal/base/hints"
	"github.com/penstock-mq/penstock/workers"
)

func FuzzJudge(f *testing.F) {
	for _, seed := range []string{"5", "1.5", "-1", "1e400", "NaN", "Inf", "-Inf", "0x1p-2", ""} {
		f.Add(seed, "429", "slow\r\ndown", []byte("body"))
	}
	f.Add("", "", "",
		[]byte(
			`{"error":{"code":503,"err_code":10077,"description":"maximum messages per subject exceeded"}}`))
	f.Add("", "", "", []byte(`{"stream":"S","seq":1}`))
	f.Add("", "-1", "\xff", []byte(strings.Repeat("é", 300)))
	f.Fuzz(func(t *testing.T, value, code, text string, body []byte) {
		err := judge(&nats.Msg{Data: body, Header: nats.Header{
			micro.ErrorHeader: {text}, micro.ErrorCodeHeader: {code}, "retry-after": {value},
		}})
		if after, _ := workers.IsRetryAfter(err); after < 0 || after > hints.Longest {
			t.Fatalf("%q: wait %v", value, after)
		}
		if text != "" && err == nil {
			t.Fatalf("code %q, %q: done", code, text)
		}
		if err != nil && (text != "" || strings.TrimSpace(code) != "") &&
			strings.ContainsAny(err.Error(), "\r\n") {
			t.Fatalf("code %q, %q: %q is not one line", code, text, err)
		}
	})
}

// TestSecretsAreNotQuoted truncates texts, which must not leave part of a credential unrecognized.
func TestSecretsAreNotQuoted(t *testing.T) {
	const secret = "s3cr3t-value-of-a-token"
	answer := strings.Repeat("x", mostDetail-10) + secret
	err := judge(&nats.Msg{Data: []byte(answer), Header: nats.Header{
		micro.ErrorHeader: {answer}, micro.ErrorCodeHeader: {"500"}}}, secret)
	if err == nil || strings.Contains(err.Error(), secret[:6]) {
		t.Errorf("the error quotes a part of it: %v", err)
	}
}
