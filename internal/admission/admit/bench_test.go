package admit_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// keepAlive is a minimal client on one connection, because it shares the machine with the server.
type keepAlive struct {
	conn net.Conn
	in   *bufio.Reader
}

func dial(b *testing.B, url string) *keepAlive {
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { conn.Close() })
	return &keepAlive{conn, bufio.NewReader(conn)}
}

func (k *keepAlive) post(path, body string) (int, error) {
	const request = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s"
	if _, err := fmt.Fprintf(k.conn, request, path, len(body), body); err != nil {
		return 0, err
	}
	status, length := 0, 0
	for {
		line, err := k.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		switch {
		case status == 0:
			status, _ = strconv.Atoi(string(line[9:12]))
		case len(line) == 2:
			_, err := k.in.Discard(length)
			return status, err
		case bytes.HasPrefix(line, []byte("Content-Length: ")):
			length, _ = strconv.Atoi(string(bytes.TrimSpace(line[16:])))
		}
	}
}

func perSecond(b *testing.B) {
	b.Helper()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
	b.ReportMetric(0, "ns/op")
}

func BenchmarkCheckHTTP(b *testing.B) {
	wide := policy.Policy{Name: "wide",
		Rule: policy.Rule{Algorithm: policy.TokenBucket, Capacity: 1_000_000,
			Refill: rate("1000000/s")}}
	h := open(b, wide)
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		client := dial(b, h.url)
		for n := 0; pb.Next(); n++ {
			status, err := client.post("/v1/check/wide/tenant-"+strconv.Itoa(n%1000), "")
			if status != 200 || err != nil {
				b.Errorf("%d, %v", status, err)
				return
			}
		}
	})
	perSecond(b)
}

var deep = policy.Policy{Name: "deep",
	Rule: policy.Rule{Algorithm: policy.LeakingBucket, Outflow: rate("1000/s"),
		Capacity: 1_000_000}}

func BenchmarkSubmitHTTP(b *testing.B) {
	h := open(b, deep)
	body := strings.Repeat("x", 100)
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		client := dial(b, h.url)
		for n := 0; pb.Next(); n++ {
			status, err := client.post("/v1/jobs/deep/tenant-"+strconv.Itoa(n%100), body)
			if status != 202 || err != nil {
				b.Errorf("%d, %v", status, err)
				return
			}
		}
	})
	perSecond(b)
}

func BenchmarkSubmitNATS(b *testing.B) {
	h := open(b, deep)
	body := bytes.Repeat([]byte("x"), 100)
	b.SetParallelism(256)
	var failed atomic.Pointer[string]
	b.RunParallel(func(pb *testing.PB) {
		for n := 0; pb.Next(); n++ {
			m, err := h.client.Request("penstock.submit.deep.tenant-"+strconv.Itoa(n%100), body,
				10*time.Second)
			if err != nil || m.Header.Get("Penstock-Status") != "202" {
				text := fmt.Sprint(m, err)
				failed.Store(&text)
				return
			}
		}
	})
	if text := failed.Load(); text != nil {
		b.Error(*text)
	}
	perSecond(b)
}

func BenchmarkRefuseHTTP(b *testing.B) {
	h := open(b, stripe)
	for range 3 {
		h.overHTTP("submit", "stripe", "acme", nil)
	}
	b.ResetTimer()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		client := dial(b, h.url)
		for pb.Next() {
			if status, err := client.post("/v1/jobs/stripe/acme", "x"); status != 429 ||
				err != nil {
				b.Errorf("%d, %v", status, err)
				return
			}
		}
	})
	perSecond(b)
}
