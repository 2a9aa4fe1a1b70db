package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock-mq/penstock/api"
	"github.com/penstock-mq/penstock/internal/admission/admit"
)

func batch(t *testing.T, address, body string, header ...string) (*http.Response, []string) {
	t.Helper()
	request := fmt.Sprintf("POST /v1/jobs:batch HTTP/1.1\r\nHost: localhost\r\n"+
		"Content-Length: %d\r\nConnection: close\r\n%s\r\n%s", len(body),
		strings.Join(append(header, ""), "\r\n"), body)
	response, text := send(t, address, request)
	return response, strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

const threeJobs = `{"policy":"mail","key":"a b","body":{"n": 1}}
{"policy":"api","key":"","headers":{"idempotency-key":"o-1"},"text":"plain"}

{"policy":"mail","key":"c","base64":"AAE="}
`

func TestABatchIsLinesOrAList(t *testing.T) {
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(threeJobs, "\n\n", "\n")), "\n")
	for name, body := range map[string]string{
		"lines": threeJobs, "a list": "[" + strings.Join(lines, ",\n") + "]\n",
	} {
		t.Run(name, func(t *testing.T) {
			service := &fakeService{}
			response, answers := batch(t, serve(t, service, Options{}), body)
			if response.StatusCode != http.StatusOK ||
				response.Header.Get("Content-Type") != "application/x-ndjson" {
				t.Errorf("answered %d, %v", response.StatusCode, response.Header)
			}
			want := []string{`{"n":1,"status":202,"verdict":"queued","job":"mail:1"}`,
				`{"n":2,"status":202,"verdict":"queued","job":"api:1"}`,
				`{"n":3,"status":202,"verdict":"queued","job":"mail:1"}`}
			if got := strings.Join(answers, "\n"); got != strings.Join(want, "\n") {
				t.Errorf("answered\n%s", got)
			}
			var asked []string
			for _, r := range service.submitted {
				asked = append(asked, fmt.Sprintf("%s %s %q %v %s", r.Policy, r.Key, r.Body,
					r.Header, r.IP))
			}
			wanted := []string{`mail a%20b "{\"n\": 1}" map[] 127.0.0.1`,
				`api _ "plain" map[Idempotency-Key:[o-1]] 127.0.0.1`,
				`mail c "\x00\x01" map[] 127.0.0.1`}
			if got := strings.Join(asked, "\n"); got != strings.Join(wanted, "\n") {
				t.Errorf("asked for\n%s", got)
			}
		})
	}
}

func TestALineThatCannotBeReadIsRefusedAlone(t *testing.T) {
	good := `{"key":"a","headers":{"a":"key"},"body":[{"a":1,"a":"\"\\"}],"policy":"mail"}`
	for _, c := range []struct{ line, field string }{
		{`{"policy":"mail","key":"a"`, "job"},
		{`nonsense`, "job"},
		{`{"policy":"mail","key":"a","polcy":1}`, "job"},
		{`{"policy":"mail","key":7}`, "job"},
		{good + good, "job"},
		{`{"policy":"other","policy":"mail","key":"a","body":1}`, "job"},
		{`{"policy":"","policy":"mail","key":"a","body":1}`, "job"},
		{`{"policy":"mail","key":"a","Key":"b"}`, "job"},
		{`{"policy":"mail","key":"a","headers":{"X":"a","\u0078":"b"}}`, "job"},
		{`{"policy":"mail","key":"a","body":{"a":{}},"body":[{"a":1}]}`, "job"},
		{`{"policy":"mail"}`, "key"},
		{`{"policy":"mail","key":"` + strings.Repeat("x", 300) + `"}`, "key"},
		{`{"policy":"mail","key":"a","body":1,"text":"b"}`, "body"},
		{`{"policy":"mail","key":"a","headers":{"X: y\r\nZ":"b"}}`, "headers"},
		{`{"policy":"mail","key":"a","headers":{"Penstock-IP":"10.0.0.1"}}`, "Penstock-IP"},
	} {
		service := &fakeService{}
		_, answers := batch(t, serve(t, service, Options{}), good+"\n"+c.line+"\n"+good)
		if len(answers) != 3 || len(service.submitted) != 2 {
			t.Fatalf("%s: %d jobs were taken, answered %q", c.line, len(service.submitted), answers)
		}
		var refused struct {
			N, Status int
			Field     string
		}
		if err := json.Unmarshal([]byte(answers[1]), &refused); err != nil || refused.N != 2 ||
			refused.Status != http.StatusBadRequest || refused.Field != c.field ||
			strings.Contains(answers[1], " Go ") {
			t.Errorf("%s: answered %s, %v", c.line, answers[1], err)
		}
	}
}

func TestABrokenListIsAcceptedUpToTheBreak(t *testing.T) {
	for _, end := range []string{`,{"policy":`, ``, `]]`, `,oops]`} {
		service := &fakeService{}
		_, answers := batch(t, serve(t, service, Options{}), `[{"policy":"mail","key":"a"}`+end)
		if len(answers) != 2 || len(service.submitted) != 1 ||
			!strings.Contains(answers[1], `"n":2`) || !strings.Contains(answers[1], "the rest of "+
			"the list") {
			t.Errorf("%q: %d jobs were taken, answered %q", end, len(service.submitted), answers)
		}
	}
}

func TestTheSizeOfABatchIsBounded(t *testing.T) {
	service := &fakeService{}
	address := serve(t, service, Options{})
	line := `{"policy":"mail","key":"a"}` + "\n"
	_, answers := batch(t, address, strings.Repeat(line, admit.MaxBatch+7))
	if len(service.submitted) != admit.MaxBatch || len(answers) != admit.MaxBatch+1 ||
		!strings.Contains(answers[admit.MaxBatch], `"status":413`) {
		t.Errorf("%d jobs were taken, and the last answer of %d is %s", len(service.submitted),
			len(answers), answers[len(answers)-1])
	}
	response, _ := send(t, address, fmt.Sprintf("POST /v1/jobs:batch HTTP/1.1\r\nHost: localhost"+
		"\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", admit.MaxBatchBytes+1))
	if response.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("too many bytes are answered %d", response.StatusCode)
	}
	small := serve(t, service, Options{Budget: admit.NewBudget(150)})
	if response, _ := batch(t, small, strings.Repeat(line, 4)); response.StatusCode != 503 {
		t.Errorf("without room for what is decoded it is answered %d", response.StatusCode)
	}
}

func TestABatchGivesItsBytesBack(t *testing.T) {
	budget := admit.NewBudget(10_000)
	address := serve(t, &fakeService{}, Options{Budget: budget})
	for _, body := range []string{threeJobs, "[oops", " ", strings.Repeat("x", 6_000)} {
		batch(t, address, body)
	}
	if err := budget.Reserve(admit.Client{Operator: true}, 10_000); err != nil {
		t.Error(err)
	}
}

func TestABatchHasNoHeadersOfAJob(t *testing.T) {
	service := &fakeService{}
	address := serve(t, service, Options{})
	for _, header := range []string{"Idempotency-Key: b-1", "Penstock-Cost: 2"} {
		response, _ := batch(t, address, threeJobs, header)
		if response.StatusCode != http.StatusBadRequest || len(service.submitted) != 0 {
			t.Errorf("%s: answered %d, %d jobs were taken", header, response.StatusCode,
				len(service.submitted))
		}
	}
}

var writtenJobs = append(strings.Split(threeJobs, "\n"),
	`{ "key" : "a/b" , "policy":"mail", "body" : [1, {"x":"}"}] }`, `{"policy":"a","body":1}`,
	`{"policy":"a","policy":"b","key":"c","body":"d"}`, `{"policy":"a","key":"c","body":}`,
	`{"policy":"a","key":"\u0041","body":1}`, `{"policy":"ä","key":"b","body":1}`,
	`{"policy":"a","body":1,"key":"b"}`, `{"Policy":"a","key":"b","body":null}`,
	`{"policy":"a""key":"b","body":1}`, `{"policy":"a","key":"b","body":1}}`,
	"{\"policy\":\"a\",\u00a0\"key\":\"b\",\"body\":1}", `{"policy":"a","key":"b","body":null}`)

func readsAsJSON(t *testing.T, text []byte) {
	got, plain := plainJob(bytes.TrimSpace(text))
	if !plain {
		return
	}
	var want api.BatchJob
	if err := decode(text, &want); err != nil {
		t.Fatalf("%q was read as plain: %v", text, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q: %+v, want %+v", text, got, want)
	}
}

func TestPlainJobsAreReadAsJSON(t *testing.T) {
	for _, text := range writtenJobs {
		readsAsJSON(t, []byte(text))
	}
	if _, plain := plainJob([]byte(writtenJobs[0])); !plain {
		t.Error("the first is not plain")
	}
}

func FuzzPlainJob(f *testing.F) {
	for _, text := range writtenJobs {
		f.Add([]byte(text))
	}
	f.Fuzz(readsAsJSON)
}
