package envoytest

// kind is a kind of case, whose answers of both are in testdata/answers.txt.
type kind struct {
	name string
	// descriptors of the domain d, in YAML
	config string
	// Requests are separated by lines: "+N" is their hits_addend, ";" separates descriptors, ","
	// their entries. A descriptor may have a limit, "limit 5/3minute", and its own hits_addend,
	// "hits 2" or "back 2" with is_negative_hits. "wait 30s" passes time, "in e" asks the domain e.
	asks string
	// differs says why answers are not the same on purpose, as docs/tools.md does.
	differs string
	// july is for cases that need the code of July 2026
	july bool
}

const (
	two  = "- {key: a, rate_limit: {unit: minute, requests_per_unit: 2}}\n"
	ten  = "- {key: a, rate_limit: {unit: minute, requests_per_unit: 10}}\n"
	none = "`hits_addend: 0` with nothing left"
)

func unitOf(unit string) kind {
	return kind{name: "unit " + unit,
		config: "- {key: a, rate_limit: {unit: " + unit + ", requests_per_unit: 1}}\n",
		asks:   "a=x\na=x"}
}

func differing(k kind, why string) kind {
	k.differs = why
	return k
}

var kindsOfCase = []kind{
	// Units and windows.
	unitOf("second"), unitOf("Minute"), unitOf("HOUR"), unitOf("day"), unitOf("month"),
	unitOf("year"), differing(unitOf("week"), "windows of weeks"),
	{name: "the next window", config: two, asks: "+2 a=x\na=x\nwait 4s\na=x"},
	{name: "the last second of a window", config: two, asks: "wait 3s\n+2 a=x\na=x"},
	{name: "the next month",
		config: "- {key: a, rate_limit: {unit: month, requests_per_unit: 1}}\n",
		asks:   "a=x\nwait 240h\na=x\nwait 240h\na=x"},
	{name: "the next year", config: "- {key: a, rate_limit: {unit: year, requests_per_unit: 1}}\n",
		asks: "a=x\nwait 3936h\na=x"},

	// Limits and hits.
	{name: "below the limit", config: two, asks: "a=x"},
	{name: "at the limit", config: two, asks: "a=x\na=x"},
	{name: "above the limit", config: two, asks: "a=x\na=x\na=x\na=x"},
	{name: "values count apart", config: two, asks: "+2 a=x\na=y\na="},
	{name: "a limit of 0", config: "- {key: a, rate_limit: {unit: day, requests_per_unit: 0}}\n",
		asks: "a=x\n+3 a=x"},
	{name: "without requests_per_unit",
		config: "- {key: a, rate_limit: {unit: day}}\n", asks: "a=x"},
	{name: "the largest limit",
		config: "- {key: a, rate_limit: {unit: day, requests_per_unit: 4294967295}}\n",
		asks:   "+4294967294 a=x\na=x\na=x"},
	{name: "hits_addend", config: ten, asks: "+3 a=x\n+3 a=x\n+4 a=x"},
	{name: "hits_addend across the limit", config: ten, asks: "+7 a=x\n+5 a=x\n+5 a=x"},
	{name: "hits_addend above the limit at once", config: ten, asks: "+25 a=x\na=x"},
	{name: "a request's hits_addend of 0 is 1", config: ten, asks: "+0 a=x"},
	{name: "a descriptor's hits_addend", config: ten, asks: "a=x hits 4\na=x hits 7"},
	{name: "a descriptor's hits_addend overrides", config: ten, asks: "+9 a=x hits 2; a=y"},
	{name: "a descriptor's hits_addend of 0 asks", config: ten, asks: "+9 a=x\na=x hits 0\na=x"},
	{name: "hits_addend of 0, nothing used", config: ten, asks: "a=x hits 0"},
	{name: "hits_addend of 0, above the limit", config: ten, asks: "+11 a=x\na=x hits 0"},
	{name: "hits_addend of 0, nothing left", config: ten, asks: "+10 a=x\na=x hits 0",
		differs: none},
	{name: "hits_addend of 0, a limit of 0", asks: "a=x hits 0", differs: none,
		config: "- {key: a, rate_limit: {unit: day, requests_per_unit: 0}}\n"},
	{name: "hits_addend of 64 bits", config: ten, asks: "a=x hits 4294967296\na=x"},
	{name: "is_negative_hits", config: ten, asks: "+9 a=x\na=x back 4\n+4 a=x",
		differs: "`is_negative_hits`"},
	{name: "the same descriptor twice", config: two, asks: "a=x; a=x\na=x; a=x"},
	{name: "near the limit", config: ten, asks: "+8 a=x\na=x\na=x\na=x"},
	{name: "near the limit at once", config: ten, asks: "+9 a=x"},
	{name: "across nearness", config: ten, asks: "+7 a=x\n+2 a=x\n+4 a=x"},
	{name: "near a limit of 1",
		config: "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n",
		asks:   "a=x\na=x"},
	{name: "near a limit of 3",
		config: "- {key: a, rate_limit: {unit: day, requests_per_unit: 3}}\n",
		asks:   "a=x\na=x\na=x\na=x"},

	// Which limit.
	{name: "no limit", config: two, asks: "b=x"},
	{name: "an unknown domain", config: two, asks: "in e a=x"},
	{name: "no entries", config: two, asks: "a=x; "},
	{name: "fewer entries than the limit", asks: "a=x\na=x,b=y",
		config: "- {key: a, descriptors: [{key: b, " +
			"rate_limit: {unit: day, requests_per_unit: 1}}]}\n"},
	{name: "more entries than the limit", config: two, asks: "a=x,b=y"},
	{name: "a limit at each depth", asks: "a=x\na=x,b=y\na=x,b=y",
		config: "- key: a\n  rate_limit: {unit: day, requests_per_unit: 1}\n" +
			"  descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]\n"},
	{name: "a value before its key", asks: "a=x\na=y\na=x",
		config: two + "- {key: a, value: x, rate_limit: {unit: day, requests_per_unit: 5}}\n"},
	{name: "a value without a limit", config: two + "- {key: a, value: x}\n", asks: "a=x\na=y"},
	{name: "several descriptors", config: two + "- {key: b, rate_limit: {unit: day, " +
		"requests_per_unit: 1}}\n", asks: "a=x; b=y; c=z\na=x; b=y; c=z\na=x; b=y; c=z"},
	{name: "the tightest first", config: two + "- {key: b, rate_limit: {unit: day, " +
		"requests_per_unit: 9}}\n", asks: "b=x; a=y\na=z; b=z"},
	{name: "the last over its limit", config: "- {key: a, rate_limit: {unit: day, " +
		"requests_per_unit: 0}}\n- {key: b, rate_limit: {unit: hour, requests_per_unit: 0}}\n",
		asks: "a=x; b=x"},
	{name: "keys and values that look alike", differs: "`a_b: c` and `a: b_c`",
		asks: "a_b=c\na=b_c",
		config: "- {key: a, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
			"- {key: a_b, rate_limit: {unit: day, requests_per_unit: 1}}\n"},

	// Wildcards.
	{name: "a wildcard at the end", asks: "a=foo1\na=foo\na=fo\na=foo1",
		config: "- {key: a, value: foo*, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "a wildcard in the middle", july: true, asks: "a=bar\na=bar1b\na=barb\na=bar1\na=bar1b",
		config: "- {key: a, value: bar*b, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "several wildcards", july: true,
		asks:   "a=foobarbaz\na=foo1bar2baz\na=foobaz\na=foobazbar\na=foo1bar2baz",
		config: "- {key: a, value: foo*bar*baz, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "a wildcard at the beginning", july: true, asks: "a=x.pdf\na=.pdf\na=x.pdf2\na=x.pdf",
		config: "- {key: a, value: '*.pdf', rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "ends of a wildcard do not overlap", july: true, asks: "a=aba\na=abaaba",
		config: "- {key: a, value: aba*aba, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "a part twice", july: true, asks: "a=xab-y\na=xabaaby",
		config: "- {key: a, value: x*ab*ab*y, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "a value before a wildcard", asks: "a=foo1\na=foo2",
		config: "- {key: a, value: foo*, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
			"- {key: a, value: foo1, rate_limit: {unit: day, requests_per_unit: 5}}\n"},
	{name: "wildcards in the file's order", asks: "a=foo1",
		config: "- {key: a, value: f*, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
			"- {key: a, value: foo*, rate_limit: {unit: day, requests_per_unit: 5}}\n"},
	{name: "a wildcard before its key", asks: "a=foo1\na=x", config: two +
		"- {key: a, value: f*, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "a wildcard with descriptors", asks: "a=foo1,b=x\na=foo2,b=x\na=foo1,b=x",
		config: "- key: a\n  value: foo*\n" +
			"  descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 1}}]\n"},
	{name: "share_threshold", asks: "a=foo1\na=foo2\na=foo", config: "- {key: a, value: foo*, " +
		"share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}\n"},
	{name: "share_threshold in the middle", july: true, asks: "a=/api/v1\na=/apiv1\na=/api2/v1",
		config: "- {key: a, value: /api*v1, share_threshold: true, " +
			"rate_limit: {unit: day, requests_per_unit: 2}}\n"},
	{name: "share_threshold with descriptors",
		asks: "a=foo1,b=x\na=foo2,b=x\na=foo3,b=y\na=foo3,b=x",
		config: "- key: a\n  value: foo*\n  share_threshold: true\n" +
			"  descriptors: [{key: b, rate_limit: {unit: day, requests_per_unit: 2}}]\n"},

	// Modes.
	{name: "shadow_mode", asks: "a=x\na=x\n+3 a=x", config: "- {key: a, shadow_mode: true, " +
		"rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "shadow_mode across the limit", asks: "+7 a=x\n+6 a=x", config: "- {key: a, " +
		"shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 10}}\n"},
	{name: "shadow_mode beside a limit", asks: "a=x; b=x\na=x; b=x", config: "- {key: b, " +
		"shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}\n" + two},
	{name: "quota_mode", july: true, asks: "a=x\na=x", config: "- {key: a, quota_mode: true, " +
		"rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "quota_mode, one of two", july: true, asks: "a=x; b=x\na=x; b=x\na=x; b=x",
		config: "- {key: a, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
			"- {key: b, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 2}}\n"},
	{name: "quota_mode beside a limit", july: true, asks: "a=x; b=x\na=x; b=x\nb=x\nb=x; a=y",
		config: "- {key: b, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 5}}\n" +
			two},
	{name: "quota_mode over, a limit not", july: true, asks: "a=x; b=x\na=x; b=x",
		config: "- {key: b, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
			ten},
	{name: "quota_mode and shadow_mode", july: true, asks: "a=x\na=x", config: "- {key: a, " +
		"quota_mode: true, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "unlimited", config: "- {key: a, rate_limit: {unlimited: true}}\n", asks: "+9 a=x"},
	{name: "unlimited beside a limit", asks: "a=x; b=x\n+2 b=x; a=x", config: two +
		"- {key: b, rate_limit: {unlimited: true}}\n"},
	{name: "unlimited quota_mode", july: true, asks: "a=x; b=x\na=x; b=x", config: "- {key: a, " +
		"quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}\n" +
		"- {key: b, quota_mode: true, rate_limit: {unlimited: true}}\n"},
	{name: "replaces", asks: "a=x; b=x\na=x", config: "- {key: a, rate_limit: {unit: day, " +
		"requests_per_unit: 1, name: one}}\n- {key: b, rate_limit: {unit: day, " +
		"requests_per_unit: 2, replaces: [{name: one}, {name: other}]}}\n"},
	{name: "replaced by unlimited",
		asks: "a=x; b=x", config: "- {key: a, rate_limit: {unit: day, " +
			"requests_per_unit: 1, name: one}}\n- {key: b, rate_limit: {unlimited: true, " +
			"replaces: [{name: one}]}}\n"},
	{name: "replaced in another request", asks: "b=x\na=x", config: "- {key: a, rate_limit: " +
		"{unit: day, requests_per_unit: 1, name: one}}\n- {key: b, rate_limit: {unit: day, " +
		"requests_per_unit: 2, replaces: [{name: one}]}}\n"},
	{name: "both replace each other",
		asks: "a=x; b=x", config: "- {key: a, rate_limit: {unit: day, " +
			"requests_per_unit: 1, name: one, replaces: [{name: two}]}}\n- {key: b, rate_limit: " +
			"{unit: day, requests_per_unit: 2, name: two, replaces: [{name: one}]}}\n"},
	{name: "metadata", july: true, asks: "a=x", config: "- {key: a, metadata: {name: x, list: " +
		"[1, {b: true}], 5: 1.5, none: }, rate_limit: {unit: day, requests_per_unit: 1}}\n"},

	// Names in metrics.
	{name: "detailed_metric", asks: "a=x\na=y\na=", config: "- {key: a, detailed_metric: true, " +
		"rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "detailed_metric of descriptors", asks: "a=x,b=y", config: "- key: a\n  descriptors: " +
		"[{key: b, detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}]\n"},
	{name: "detailed_metric of a wildcard", asks: "a=foo1", config: "- {key: a, value: foo*, " +
		"detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "detailed_metric and share_threshold", asks: "a=foo1,b=y\na=foo2,b=\na=foo1,b=y",
		config: "- key: a\n  value: foo*\n  share_threshold: true\n  descriptors: [{key: b, " +
			"detailed_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}]\n"},
	{name: "detailed_metric above its descriptors", asks: "a=x,b=y", config: "- key: a\n" +
		"  detailed_metric: true\n  descriptors: [{key: b, rate_limit: {unit: day, " +
		"requests_per_unit: 1}}]\n"},
	{name: "value_to_metric", asks: "a=x\na=y\na=", config: "- {key: a, value_to_metric: true, " +
		"rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "value_to_metric above its descriptors", asks: "a=x,b=y,c=z", config: "- key: a\n" +
		"  value_to_metric: true\n  descriptors: [{key: b, descriptors: [{key: c, value: z, " +
		"rate_limit: {unit: day, requests_per_unit: 1}}]}]\n"},
	{name: "value_to_metric of a wildcard", asks: "a=foo1", config: "- {key: a, value: foo*, " +
		"value_to_metric: true, rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "value_to_metric and share_threshold",
		asks: "a=foo1", config: "- {key: a, value: foo*, " +
			"value_to_metric: true, share_threshold: true, " +
			"rate_limit: {unit: day, requests_per_unit: 1}}\n"},
	{name: "value_to_metric and detailed_metric", asks: "a=x,b=y", config: "- key: a\n" +
		"  descriptors: [{key: b, value_to_metric: true, detailed_metric: true, " +
		"rate_limit: {unit: day, requests_per_unit: 1}}]\n"},
	{name: "addresses in metrics", differs: "names in metrics", asks: "a=10.0.0.1\na=1:2|3",
		config: "- {key: a, detailed_metric: true, " +
			"rate_limit: {unit: day, requests_per_unit: 1}}\n"},

	// Limits of requests.
	{name: "a request's limit", config: two, asks: "z=x limit 2/hour\nz=x limit 2/hour\n" +
		"z=x limit 2/hour\nz=y limit 2/hour", differs: "names of requests' limits"},
	{name: "a request's limit before the file's", config: two, asks: "a=x limit 5/day",
		differs: "names of requests' limits"},
	{name: "a request's limit, an unknown domain", config: two, asks: "in e a=x limit 5/day"},
	{name: "a request's limit changes", config: two, differs: "a request's limit that changes",
		asks: "z=x limit 2/hour\nz=x limit 5/hour"},
	{name: "a request's unit_multiplier", config: two,
		differs: "`unit_multiplier` of a request's limit",
		asks:    "z=x limit 1/3minute\nwait 4s\nz=x limit 1/3minute"},
	{name: "a request's limit of shadow_mode", differs: "names of requests' limits",
		config: "- {key: a, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 9}}\n",
		asks:   "+2 a=x limit 1/day"},

	// Requests that are wrong.
	{name: "no descriptors", config: two, asks: "none", differs: "errors"},
	{name: "no domain", config: two, asks: "in  a=x", differs: "errors"},
}
