package trace

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// told returns a trace as text: requests as seconds since 2030, key, and other fields.
func told(t *Trace) string {
	var b strings.Builder
	for _, r := range t.Requests {
		since := time.Unix(0, r.At).Sub(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
		fmt.Fprintf(&b, "%v %s", since, r.Key)
		if r.Cost != 1 {
			fmt.Fprintf(&b, " cost %d", r.Cost)
		}
		if r.Policy != "" {
			fmt.Fprintf(&b, " of %s", r.Policy)
		}
		if r.IP != "" {
			fmt.Fprintf(&b, " from %s", r.IP)
		}
		if r.Deadline != 0 || r.Priority != 0 {
			fmt.Fprintf(&b, " within %v, priority %d", r.Deadline, r.Priority)
		}
		if r.Duration != 0 {
			fmt.Fprintf(&b, " for %v", r.Duration)
		}
		b.WriteByte('\n')
	}
	for _, p := range t.Problems {
		fmt.Fprintf(&b, "line %d: %s\n", p.Line, p.Reason)
	}
	fmt.Fprintf(&b, "%s, %d skipped", t.Format, t.Skipped)
	return b.String()
}

func TestFormatsAreReadAndBadLinesSkipped(t *testing.T) {
	const log = `203.0.113.7 - ann [01/Jan/2030:00:00:00 +0000] "GET /a?b=1 HTTP/1.1" 200 12` + "\n" +
		`2001:db8::1 - - [01/Jan/2030:01:00:00 +0100] "POST /\"a\" HTTP/1.1" 200 1 "-" "curl/8"` +
		"\n" + `203.0.113.7 - - [31/Feb/2030:00:00:00 +0000] "GET /a HTTP/1.1" 200 12` + "\n" +
		`203.0.113.7 - - [01/Jan/2030:00:00:02 +0000] "-" 408 -` + "\n" + `Segmentation fault`
	for _, c := range []struct {
		name, text string
		options    Options
		want       string
	}{
		{"nothing", "", Options{}, ", 0 skipped"},
		{"blank lines", "\n \r\n\n", Options{}, ", 0 skipped"},
		{"columns without names", "1893456000,ann\n1893456001.25,bob,3\n", Options{},
			"0s ann\n1.25s bob cost 3\ncsv, 0 skipped"},
		{"named columns", "Cost,TENANT,ignored,At,policy,ip,deadline,priority,duration\n" +
			`2,"a, b",x,2030-01-01T00:00:01Z,mail,203.0.113.7,30s,-4,110ms` + "\n" +
			",,,2030-01-01 00:00:02.5,,,,,\n", Options{Key: "tenant"},
			"1s a,%20b cost 2 of mail from 203.0.113.7 within 30s, priority -4 for 110ms\n" +
				"2.5s _\ncsv, 0 skipped"},
		{"units of time", "1893456000\n1893456000000000003\n1893456000000002\n1893456000001\n",
			Options{}, "0s _\n3ns _\n2µs _\n1ms _\ncsv, 0 skipped"},
		{"out of order", "1893456002,b\n1893456001,a\n1893456002,c\n", Options{},
			"1s a\n2s b\n2s c\ncsv, 0 skipped"},
		{"bad columns", "\ufefftime,key,cost\nNaN,a\n1893456000,a,-1\n1893456000,a,NaN\n" +
			"1893456000,a,1,2\n-5,a\n9e99,a\n1893456000,\"a\n1893456000,\xff\n1893456000,ünï\n",
			Options{}, "0s %C3%BCn%C3%AF\n" +
				`line 2: time "NaN": want one such as 2026-11-23T14:32:07.113Z, or seconds since 1970
line 3: cost -1: want 1 to 1000000000000
line 4: cost "NaN": want a whole number
line 5: 4 columns: want at most 3
line 6: time "-5": want one such as 2026-11-23T14:32:07.113Z, or seconds since 1970
csv, 8 skipped`},
		{"years", "0001-01-01T00:00:00Z\n2300-01-01T00:00:00Z\n", Options{},
			`line 1: time 0001-01-01T00:00:00Z: want one of the years 1970 to 2254
line 2: time 2300-01-01T00:00:00Z: want one of the years 1970 to 2254
csv, 2 skipped`},
		{"a column that is not named", "1893456000,a\n", Options{Key: "tenant"},
			"line 1: no line names a column tenant\ncsv, 1 skipped"},
		{"a long line", "1893456000,a\n1893456000," + strings.Repeat("x", 3<<20) +
			"\n1893456001,b\n", Options{},
			"0s a\n1s b\nline 2: is longer than 1048576 bytes\ncsv, 1 skipped"},
		{"objects", `{"time":"2030-01-01T00:00:00Z","key":"a\u00fc","cost":2}` + "\n" +
			`{"timestamp":1893456001,"user":"x"}` + "\n" + `{"time":1893456001,"cost":1.5}` + "\n" +
			`{"key":"b"}` + "\n[]\n{\"time\":1893456002,\"key\":null,\"deadline\":\"-1s\"}\n" +
			`{"time":1893456002,"duration":3}` + "\n" + `{"time":1893456002,"duration":"-1s"}` + "\n",
			Options{}, `0s a%C3%BC cost 2
1s _
line 3: cost "1.5": want a whole number
line 4: no time
line 5: is no object of JSON
line 6: deadline -1s: want no less than none
line 7: duration "3": want one such as 110ms
ndjson, 6 skipped`},
		{"events", `{"at":"2030-01-01T00:00:01Z","type":"accepted","policy":"mail","key":"a",` +
			`"job":"mail:1"}` + "\n" + `{"at":"2030-01-01T00:00:02Z","type":"started",` +
			`"policy":"mail","key":"a","job":"mail:1","attempt":1,"wait_ms":5}`, Options{},
			"1s a of mail\nndjson, 0 skipped"},
		{"a log by address", log, Options{},
			"0s 203.0.113.7 from 203.0.113.7\n500ms 2001:db8::1 from 2001:db8::1\n" +
				"2s 203.0.113.7 from 203.0.113.7\n" +
				"line 3: time \"31/Feb/2030:00:00:00 +0000\" is none\n" +
				"line 5: is no line of an access log\nlog, 2 skipped"},
		{"a log by path", log, Options{Key: "path"},
			"0s /a from 203.0.113.7\n500ms /\\\"a\\\" from 2001:db8::1\n" +
				"line 3: time \"31/Feb/2030:00:00:00 +0000\" is none\n" +
				"line 4: request \"-\" has no path\n" +
				"line 5: is no line of an access log\nlog, 3 skipped"},
		{"a log by user", log, Options{Key: "user", Format: Log},
			"0s ann from 203.0.113.7\n500ms - from 2001:db8::1\n2s - from 203.0.113.7\n" +
				"line 3: time \"31/Feb/2030:00:00:00 +0000\" is none\n" +
				"line 5: is no line of an access log\nlog, 2 skipped"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := Read(strings.NewReader(c.text), c.options)
			if err != nil {
				t.Fatal(err)
			}
			if told(got) != c.want {
				t.Errorf("it says\n%s\nwant\n%s", told(got), c.want)
			}
			for _, p := range got.Problems {
				if !utf8.ValidString(p.Text) || len(p.Text) > 3*mostText {
					t.Errorf("it shows %q", p.Text)
				}
			}
		})
	}
	if _, err := Read(strings.NewReader("x"), Options{Format: "xml"}); err == nil {
		t.Error("xml is read")
	}
}

func FuzzRead(f *testing.F) {
	f.Add("time,key\n1893456000,a\n", "auto", "key")
	f.Add(`{"time":1893456000,"key":"a"}`, "ndjson", "")
	f.Add(`::1 - - [01/Jan/2030:00:00:00 +0000] "GET / HTTP/1.1" 200 1`, "log", "path")
	for _, a := range accesses {
		text, err := os.ReadFile("testdata/" + a.name + ".log")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), a.name, "path")
	}
	f.Fuzz(func(t *testing.T, text, format, key string) {
		got, err := Read(strings.NewReader(text), Options{Format: format, Key: key})
		if err != nil {
			return
		}
		if got.Skipped+len(got.Requests) > got.Lines || len(got.Problems) > got.Skipped {
			t.Errorf("of %d lines %d are requests and %d skipped", got.Lines, len(got.Requests),
				got.Skipped)
		}
		for i, r := range got.Requests {
			if r.Cost < 1 || r.At < 0 || r.Key == "" || i > 0 && r.At < got.Requests[i-1].At {
				t.Errorf("request %d is %+v", i, r)
			}
		}
	})
}
