package answers

import (
	"strings"
	"time"

	"github.com/penstock-mq/penstock/policy"
)

// api has the rules of an API, for its hosts; those that begin with a dot are domains.
type api struct {
	name  string
	hosts []string
	given []given
	rules []Rule // the same
}

type given struct {
	Status []int
	At     Place
	Values []string
	Means  Means
	Wait   Wait
}

// apis are the APIs whose status and headers alone mislead. What follows a name is where its
// documentation, or else the code or the report, says so.
var apis = []api{
	// developer.atlassian.com/cloud/jira/platform/rate-limiting: a 503 is overload
	{name: "atlassian", hosts: []string{"api.atlassian.com", ".atlassian.net"}, given: []given{
		{Status: []int{503}, Means: Retry},
	}},
	// airtable.com/developers/web/api/rate-limits: 30 s, and a month that is used up
	{name: "airtable", hosts: []string{"api.airtable.com"}, given: []given{
		{At: inJSON("**"), Values: []string{"PUBLIC_API_BILLING_LIMIT_EXCEEDED"}, Means: Permanent},
		{Status: []int{429}, Means: Throttled, Wait: after(30 * time.Second)},
	}},
	// developer-docs.amazon.com/sp-api/docs/usage-plans-and-rate-limits: the rate, in a header
	{name: "amazon-sp", hosts: []string{"sellingpartnerapi-na.amazon.com",
		"sellingpartnerapi-eu.amazon.com", "sellingpartnerapi-fe.amazon.com"}, given: []given{
		{Status: []int{429}, Means: Throttled,
			Wait: Wait{AnswerPlace: inHeader("X-Amzn-Ratelimit-Limit"), Unit: "/s"}},
	}},
	// docs.anthropic.com/en/api/errors, …/rate-limits: spend limits
	{name: "anthropic", hosts: []string{"api.anthropic.com"}, given: []given{
		{At: inJSON("error.details.error_code"), Values: []string{"enforced_spend_limit_reached"},
			Means: Permanent},
		{At: inJSON("error.type"), Values: []string{"billing_error"}, Means: Permanent},
	}},
	// auth0.com/docs/troubleshoot/customer-support/operational-policies/rate-limit-policy; the 500
	// of token requests: community.auth0.com/t/77440
	{name: "auth0", hosts: []string{".auth0.com"}, given: []given{
		{Status: []int{500}, At: inJSON("error"), Values: []string{"access_denied"},
			Means: Throttled},
	}},
	{name: "aws", hosts: []string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws"}, given: aws()},
	// learn.microsoft.com/en-us/answers/questions/68741: a lock
	{name: "azure", hosts: []string{"management.azure.com"}, given: []given{
		{At: inJSON("error.code"), Values: []string{"RetryableErrorDueToAnotherOperation"},
			Means: Retry},
	}},
	// developers.binance.com/docs/binance-spot-api-docs/rest-api/limits: 418 is a ban for going on
	{name: "binance",
		hosts: []string{".binance.com", ".binance.us", ".binance.vision"},
		given: []given{
			{Status: []int{418, 429}, Means: Throttled, Wait: waitAt(inJSON("msg"))},
		}},
	// discord.com/developers/docs/topics/rate-limits: the body has the decimals, and the time of
	// shared resources
	{name: "discord",
		hosts: []string{"discord.com", "discordapp.com", "canary.discord.com", "ptb.discord.com"},
		given: []given{{Status: []int{429}, Means: Throttled,
			Wait: waitAt(inJSON("retry_after"))}}},
	// docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api,
	// …/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
	{name: "github",
		hosts: []string{"api.github.com", "uploads.github.com", ".ghe.com"},
		given: []given{
			{Status: []int{403, 429}, At: inJSON("message"), Values: []string{
				"*secondary rate limit*", "*abuse detection*"}, Means: Throttled,
				Wait: after(time.Minute)},
			{Status: []int{200}, At: inJSON("errors.*.type"), Values: []string{"RATE_LIMITED",
				"RATE_LIMIT"}, Means: Throttled, Wait: after(time.Minute)},
			{Status: []int{200}, At: inJSON("errors.*.message"), Values: []string{
				"*secondary rate limit*"}, Means: Throttled,
				Wait: after(time.Minute)},
		}},
	// developers.google.com/workspace/drive/api/guides/limits, …/gmail/api/guides/handle-errors:
	// the time is in the message; ai.google.dev/gemini-api/docs/rate-limits: a model outside of the
	// plan has a limit of 0, and a delay that is of no use
	{name: "google", hosts: []string{".googleapis.com"}, given: []given{
		{Status: []int{429}, At: inJSON("error.message"), Values: []string{"*limit: 0,*",
			"*limit: 0\n*", "*limit: 0"}, Means: Permanent},
		{Status: []int{403}, At: inJSON("error.errors.*.reason"), Values: []string{
			"userRateLimitExceeded", "rateLimitExceeded", "dailyLimitExceeded", "quotaExceeded"},
			Means: Throttled, Wait: waitAt(inJSON("error.message"))},
		{Status: []int{429}, Means: Throttled,
			Wait: waitAt(inJSON("error.details.*.retryDelay"))},
	}},
	// developers.google.com/maps/documentation/geocoding/requests-geocoding#StatusCodes
	{name: "google-maps", hosts: []string{"maps.googleapis.com"}, given: []given{
		{Status: []int{200}, At: inJSON("status"), Values: []string{"OVER_QUERY_LIMIT"},
			Means: Throttled},
		{Status: []int{200}, At: inJSON("status"), Values: []string{"OVER_DAILY_LIMIT",
			"REQUEST_DENIED"}, Means: Permanent},
	}},
	// docs.kraken.com/api/docs/guides/spot-rest-ratelimits
	{name: "kraken", hosts: []string{"api.kraken.com"}, given: []given{
		{Status: []int{200}, At: inJSON("error.*"), Values: []string{"E*:Rate limit exceeded",
			"EService:*Throttled:*"}, Means: Throttled, Wait: waitAt(inJSON("error.*"))},
	}},
	// linear.app/developers/rate-limiting
	{name: "linear", hosts: []string{"api.linear.app"}, given: []given{
		{Status: []int{200, 400}, At: inJSON("errors.*.extensions.code"),
			Values: []string{"RATELIMITED"}, Means: Throttled},
	}},
	// learn.microsoft.com/en-us/linkedin/shared/api-guide/concepts/decoration: a field that was
	// refused, in a 200
	{name: "linkedin", hosts: []string{"api.linkedin.com"}, given: []given{
		{Status: []int{200}, At: inJSON("**.serviceErrorCode"), Values: []string{"101"},
			Means: Throttled},
	}},
	// mailchimp.com/developer/marketing/docs/fundamentals/#throttling: a 403 that is no JSON
	{name: "mailchimp", hosts: []string{".api.mailchimp.com"}, given: []given{
		{Status: []int{403}, At: inHeader("Content-Type"), Values: []string{"text/html*"},
			Means: Throttled},
	}},
	// www.mediawiki.org/wiki/Manual:Maxlag_parameter, …/API:Etiquette
	{name: "mediawiki",
		hosts: []string{".wikipedia.org", ".wikimedia.org", ".wikidata.org", ".wiktionary.org",
			".mediawiki.org"}, given: []given{
			{Status: []int{200}, At: inJSON("error.code"),
				Values: []string{"maxlag", "ratelimited"},
				Means:  Throttled, Wait: after(5 * time.Second)},
			{Status: []int{200}, At: inJSON("errors.*.code"),
				Values: []string{"maxlag", "ratelimited"},
				Means:  Throttled, Wait: after(5 * time.Second)},
		}},
	// developers.facebook.com/docs/graph-api/overview/rate-limiting: the time is in minutes
	{name: "meta", hosts: []string{"graph.facebook.com", "graph.instagram.com"}, given: []given{
		{Status: []int{400, 403}, At: inJSON("error.code"), Values: []string{"4", "17", "32", "613",
			"80000", "80001", "80002", "80003", "80004", "80005", "80006", "80008", "80009",
			"80014"}, Means: Throttled, Wait: Wait{Unit: "m", AnswerPlace: Place{
			Header: "X-Business-Use-Case-Usage",
			JSON:   "*.*.estimated_time_to_regain_access"}}},
	}},
	// developer.monday.com/api-reference/docs/error-handling; the second is the form of before 2025
	{name: "monday", hosts: []string{"api.monday.com"}, given: []given{
		{Status: []int{200, 429}, At: inJSON("errors.*.extensions.code"), Values: []string{
			"COMPLEXITY_BUDGET_EXHAUSTED", "*RATE_LIMIT*", "*CONCURRENCY_LIMIT*",
			"DAILY_LIMIT_EXCEEDED"}, Means: Throttled,
			Wait: waitAt(inJSON("errors.*.extensions.retry_in_seconds"))},
		{Status: []int{200, 429}, At: inJSON("error_code"), Values: []string{"ComplexityException"},
			Means: Throttled, Wait: waitAt(inJSON("error_message"))},
	}},
	// docs.oracle.com/en/cloud/saas/netsuite/ns-online-help/bridgehead_1525252812.html
	{name: "netsuite", hosts: []string{".api.netsuite.com"}, given: []given{
		{Status: []int{400}, At: inJSON("error.code"), Values: []string{
			"SSS_REQUEST_LIMIT_EXCEEDED"}, Means: Throttled},
	}},
	// operations.osmfoundation.org/policies/nominatim; the block ends by itself:
	// github.com/osm-search/Nominatim/discussions/3801
	{name: "nominatim", hosts: []string{"nominatim.openstreetmap.org"}, given: []given{
		{Status: []int{403}, Means: Throttled},
	}},
	// developers.notion.com/reference/request-limits: 529 is overload
	{name: "notion",
		hosts: []string{"api.notion.com"},
		given: []given{{Status: []int{503, 529}, Means: Retry}}},
	// platform.openai.com/docs/guides/error-codes: no credit
	{name: "openai", hosts: []string{"api.openai.com"}, given: []given{
		{Status: []int{429}, At: inJSON("error.type"), Values: []string{"insufficient_quota"},
			Means: Permanent},
		{Status: []int{429}, At: inJSON("error.code"), Values: []string{"insufficient_quota",
			"credit_balance_exhausted", "billing_hard_limit_reached",
			"*_spend_limit_exceeded"}, Means: Permanent},
	}},
	// community.pagerduty.com/t/3322: of the first version of its events
	{name: "pagerduty-events", hosts: []string{"events.pagerduty.com"}, given: []given{
		{Status: []int{403}, Means: Throttled},
	}},
	// docs.pypi.org/api, github.com/pypi/warehouse: warehouse/legacy/api/xmlrpc/views.py
	{name: "pypi", hosts: []string{"pypi.org"}, given: []given{
		{Status: []int{200}, At: Place{Body: true}, Values: []string{
			"<?xml*<methodResponse>*<fault>*-32500*HTTPTooManyRequests*"}, Means: Throttled,
			Wait: waitAt(Place{Body: true})},
	}},
	// developer.intuit.com/app/developer/qbo/docs/learn/rest-api-features#limits-and-throttles; one
	// item of a batch, in a 200
	{name: "quickbooks",
		hosts: []string{"quickbooks.api.intuit.com", "sandbox-quickbooks.api.intuit.com"},
		given: []given{{Status: []int{200}, At: inJSON("BatchItemResponse.*.Fault.Error.*.code"),
			Values: []string{"3001", "003001"}, Means: Throttled}}},
	// github.com/praw-dev/praw: praw/exceptions.py (api_type=json)
	{name: "reddit", hosts: []string{"oauth.reddit.com", "www.reddit.com"}, given: []given{
		{Status: []int{200}, At: inJSON("json.errors.*.0"), Values: []string{"RATELIMIT"},
			Means: Throttled, Wait: waitAt(inJSON("json.ratelimit"))},
	}},
	// developer.salesforce.com/docs/atlas.en-us.salesforce_app_limits_cheatsheet.meta
	{name: "salesforce", hosts: []string{".salesforce.com", ".force.com"}, given: []given{
		{Status: []int{403}, At: inJSON("*.errorCode"), Values: []string{"REQUEST_LIMIT_EXCEEDED"},
			Means: Throttled},
	}},
	// develop.sentry.dev/sdk/expected-features/rate-limiting
	{name: "sentry", hosts: []string{"sentry.io", ".sentry.io"}, given: []given{
		{At: inHeader("X-Sentry-Rate-Limits"), Values: []string{"*:suspended", "*:suspended:*",
			"*:suspended,*"}, Means: Permanent},
	}},
	// shopify.dev/docs/api/usage/limits: the points that are missing, at the rate of their return
	{name: "shopify", hosts: []string{".myshopify.com"}, given: []given{
		{Status: []int{200, 429}, At: inJSON("errors.*.extensions.code"),
			Values: []string{"THROTTLED"}, Means: Throttled, Wait: Wait{
				Need: "extensions.cost.requestedQueryCost",
				Have: "extensions.cost.throttleStatus.currentlyAvailable",
				Rate: "extensions.cost.throttleStatus.restoreRate"}},
	}},
	// docs.slack.dev/apis/web-api/rate-limits; in a 200: github.com/slackapi/python-slack-sdk
	{name: "slack", hosts: []string{"slack.com", ".slack.com"}, given: []given{
		{Status: []int{200}, At: inJSON("error"), Values: []string{"ratelimited", "rate_limited"},
			Means: Throttled},
	}},
	// docs.stripe.com/rate-limits, …/error-low-level: a lock, and what the header says
	{name: "stripe", hosts: []string{"api.stripe.com", "files.stripe.com"}, given: []given{
		{At: inHeader("Stripe-Should-Retry"), Values: []string{"false"}, Means: Permanent},
		{Status: []int{409, 429}, At: inJSON("error.code"), Values: []string{"lock_timeout"},
			Means: Retry},
		{Status: []int{400, 402, 404, 409, 424}, At: inHeader("Stripe-Should-Retry"),
			Values: []string{"true"}, Means: Retry},
	}},
	// core.telegram.org/bots/api#responseparameters
	{name: "telegram", hosts: []string{"api.telegram.org"}, given: []given{
		{Status: []int{200, 429}, At: inJSON("error_code"), Values: []string{"429"},
			Means: Throttled, Wait: waitAt(inJSON("parameters.retry_after"))},
	}},
	// docs.x.com/x-api/fundamentals/rate-limits; a month that is used up
	{name: "x", hosts: []string{"api.x.com", "api.twitter.com"}, given: []given{
		{At: inJSON("type"), Values: []string{"*/usage-capped"}, Means: Permanent},
	}},
}

// aws has the rules of all services:
// docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html,
// github.com/boto/botocore: botocore/retries/standard.py. The code of an error is in JSON, XML or a
// header, perhaps with a namespace. An S3 error may be in a 200:
// docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
func aws() (rules []given) {
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
		rules = append(rules,
			given{At: inHeader("X-Amzn-Errortype"), Values: plain, Means: e.means, Wait: wait},
			given{At: inJSON("__type"), Values: plain, Means: e.means, Wait: wait},
			given{At: inJSON("code"), Values: plain, Means: e.means, Wait: wait},
			given{At: Place{Body: true}, Values: xml, Means: e.means, Wait: wait})
	}
	in200 := func(code string) []string {
		const head = `<?xml version="1.0" encoding="UTF-8"?>`
		text := "<Error><Code>" + code + "</Code>*"
		return []string{text, head + text, head + "\n" + text, head + "\n\n" + text}
	}
	return append(rules,
		given{Status: []int{500, 502, 503, 504}, At: inHeader("X-Amz-Retry-After"), Means: Retry,
			Wait: wait},
		given{Status: []int{200}, At: Place{Body: true}, Values: in200("SlowDown"),
			Means: Throttled},
		given{Status: []int{200}, At: Place{Body: true}, Values: in200("InternalError"),
			Means: Retry})
}

func inHeader(name string) Place { return Place{Header: name} }

func inJSON(path string) Place { return Place{JSON: path} }

func after(d time.Duration) Wait { return Wait{Default: policy.Duration(d)} }

func waitAt(p Place) Wait { return Wait{AnswerPlace: p} }

var named, byHost = index()

func index() (named, byHost map[string]*api) {
	named, byHost = map[string]*api{}, map[string]*api{}
	for i := range apis {
		a := &apis[i]
		named[a.name] = a
		for _, g := range a.given {
			a.rules = append(a.rules, Rule{Status: g.Status, AnswerPlace: g.At, Values: g.Values,
				Means: g.Means, Wait: g.Wait})
		}
		for _, host := range a.hosts {
			byHost[host] = a
		}
	}
	return named, byHost
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
