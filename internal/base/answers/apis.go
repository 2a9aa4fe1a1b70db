package answers

import (
	_ "embed"
	"encoding/json"
	"strings"
)

// api has the rules of an API, for its hosts; those that begin with a dot are domains.
type api struct {
	Name  string   `json:"name"`
	Hosts []string `json:"hosts"`
	Rules []Rule   `json:"rules"`
}

// file has the APIs whose status and headers alone mislead, with rules as policies have them; "see"
// says where the API's documentation, or else its code or a report, tells of them.
//
//go:embed apis.json
var file []byte

// aws has the rules of all services:
// docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html,
// github.com/boto/botocore: botocore/retries/standard.py. The code of an error is in JSON, XML or a
// header, perhaps with a namespace. An S3 error may be in a 200:
// docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
func aws() (rules []Rule) {
	throttling := []string{"Throttling", "ThrottlingException", "ThrottledException",
		"RequestThrottled", "RequestThrottledException", "TooManyRequestsException",
		"ProvisionedThroughputExceededException", "TransactionInProgressException",
		"RequestLimitExceeded", "BandwidthLimitExceeded", "LimitExceededException", "SlowDown",
		"PriorRequestNotComplete", "EC2ThrottledException"}
	wait := Wait{AnswerPlace: inHeader("X-Amz-Retry-After"), Unit: "ms"}
	for _, e := range []struct {
		means Means
		codes []string
	}{{Retry, []string{"ModelNotReadyException"}}, {Throttled, throttling}} {
		var plain, xml []string
		for _, code := range e.codes {
			plain = append(plain, code, "*#"+code, code+":*", "*#"+code+":*")
			xml = append(xml, "<*<Error>*<Code>"+code+"</Code>*", "<Error>*<Code>"+code+"</Code>*")
		}
		for _, at := range []Place{inHeader("X-Amzn-Errortype"), inJSON("__type"), inJSON("code")} {
			rules = append(rules, Rule{AnswerPlace: at, Values: plain, Means: e.means, Wait: wait})
		}
		rules = append(rules, Rule{AnswerPlace: Place{Body: true}, Values: xml, Means: e.means,
			Wait: wait})
	}
	in200 := func(code string) []string {
		const head = `<?xml version="1.0" encoding="UTF-8"?>`
		text := "<Error><Code>" + code + "</Code>*"
		return []string{text, head + text, head + "\n" + text, head + "\n\n" + text}
	}
	return append(rules,
		Rule{Status: []int{500, 502, 503, 504}, AnswerPlace: inHeader("X-Amz-Retry-After"),
			Means: Retry, Wait: wait},
		Rule{Status: []int{200}, AnswerPlace: Place{Body: true}, Values: in200("SlowDown"),
			Means: Throttled},
		Rule{Status: []int{200}, AnswerPlace: Place{Body: true}, Values: in200("InternalError"),
			Means: Retry})
}

func inHeader(name string) Place { return Place{Header: name} }

func inJSON(path string) Place { return Place{JSON: path} }

var apis, named, byHost = index()

func index() (apis []api, named, byHost map[string]*api) {
	if err := json.Unmarshal(file, &apis); err != nil {
		panic(err)
	}
	apis = append(apis, api{"aws",
		[]string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws"}, aws()})
	named, byHost = map[string]*api{}, map[string]*api{}
	for i := range apis {
		a := &apis[i]
		named[a.Name] = a
		for _, host := range a.Hosts {
			byHost[host] = a
		}
	}
	return apis, named, byHost
}

// ofHost returns the API of a host, or nil. The longest domain counts.
func ofHost(host string) *api {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if a := byHost[host]; a != nil {
		return a
	}
	for i, c := range host {
		if a := byHost[host[i:]]; c == '.' && a != nil {
			return a
		}
	}
	return nil
}
