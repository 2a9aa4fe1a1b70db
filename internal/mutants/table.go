package main

// table lists all mutants by the part of the program. Texts are short but unique: they become stale
// only when the mutated code changes.
var table = []mutant{
	// Envoy's rate limit service.

	{
		name: "envoy-health-says-nothing-of-the-end", file: "cmd/admitter/beside.go",
		old: "context.AfterFunc(ctx, server.Stopping)",
		new: "",
		by:  "./cmd/admitter TestGatewaysAreAnswered",
	},
	{
		name: "envoy-limits-that-went-stay-in-metrics", file: "internal/telemetry/envoy.go",
		old: "if !slices.Contains(names, name) {",
		new: "if !slices.Contains(names, name) && false {",
		by:  "./internal/telemetry TestLimitsOfGatewaysComeAndGo",
	},
	{
		name: "files-in-directories-are-not-followed", file: "internal/follow/follow.go",
		old: "inside, _ := os.ReadDir(name)",
		new: "inside, _ := os.ReadDir(\"\")",
		by:  "./internal/follow TestADirectoryChangesWithItsFiles",
	},
	{
		name: "envoy-wildcards-in-any-order", file: "internal/envoy/envoy.go",
		old: "return w.node, w.name",
		new: "found, wild = w.node, w.name",
		by:  "./internal/envoy TestDecisionsInMemory",
	},
	{
		name: "envoy-wildcards-match-only-their-ends", file: "internal/envoy/envoy.go",
		old: "rest = rest[at+len(part):]",
		new: "_ = part",
		by:  "./internal/envoy TestAWildcardMatchesInTheMiddle",
	},
	{
		name: "envoy-ends-of-wildcards-overlap", file: "internal/envoy/envoy.go",
		old: "bytes.CutSuffix(rest, w.parts[last])",
		new: "bytes.CutSuffix(full, w.parts[last])",
		by:  "./internal/envoy TestAWildcardMatchesInTheMiddle",
	},
	{
		name: "envoy-quotas-refuse-one-by-one", file: "internal/envoy/answer.go",
		old: "if quotas > 0 && quotas == quotasOver {",
		new: "if quotasOver > 0 {",
		by:  "./internal/envoy TestQuotaLimitsRefuseTogether",
	},
	{
		name: "envoy-quotas-refuse-nothing", file: "internal/envoy/answer.go",
		old: "if quotas > 0 && quotas == quotasOver {",
		new: "if false {",
		by:  "./internal/envoy TestQuotaLimitsRefuseTogether",
	},
	{
		name: "envoy-hits-over-the-limit-count-whole", file: "internal/envoy/answer.go",
		old: "over = after - limit",
		new: "_ = after - limit",
		by:  "./internal/envoy TestHitsAreCountedAsInTheReference",
	},
	{
		name: "envoy-hits-near-the-limit-count-whole", file: "internal/envoy/answer.go",
		old: "max(after, near)-near)",
		new: "hits)",
		by:  "./internal/envoy TestHitsAreCountedAsInTheReference",
	},
	{
		name: "envoy-names-of-hits-are-without-number", file: "internal/envoy/answer.go",
		old: "if len(s.named) >= mostNames {",
		new: "if len(s.named) >= 10*mostNames {",
		by:  "./internal/envoy TestNamesOfHitsAreBounded",
	},
	{
		name: "envoy-months-begin-on-mondays", file: "internal/envoy/service.go",
		old: "SinceEpoch: sinceEpoch(l.Rate)},\n\t}.WithDefaults()",
		new: "},\n\t}.WithDefaults()",
		by:  "./internal/envoy TestMonthsAndYearsBeginAsInTheReference",
	},
	{
		name: "redis-log-keeps-all-instants", file: "algorithms/redisstore/mirror.go",
		old: "l.Grain().Microseconds()",
		new: "1",
		by:  "./algorithms/redisstore TestRequestsTogether",
	},
	{
		name: "redis-counts-windows-from-mondays", file: "algorithms/redisstore/mirror.go",
		old: "offset = 3 * 24 * time.Hour",
		new: "offset = 0 * time.Hour",
		by:  "./algorithms/redisstore TestConformance",
	},
	{
		name: "envoy-windows-of-several-units-are-of-one", file: "internal/envoy/envoy.go",
		old: "n = r.UnitMultiplier.Value",
		new: "n = min(r.UnitMultiplier.Value, 1)",
		by:  "./internal/envoy TestBadRequestsAreRefused",
	},
	{
		name: "envoy-replaced-limits-count", file: "internal/envoy/service.go",
		old: "found[i].limit = nil",
		new: "_ = i",
		by:  "./internal/envoy TestDecisionsInMemory",
	},
	{
		name: "envoy-what-does-not-fit-takes-nothing", file: "internal/envoy/service.go",
		old: "ask.Take(ctx, from, checked.Remaining)",
		new: "ask.Peek(ctx, from, checked.Remaining)",
		by:  "./internal/envoy TestDecisionsInMemory",
	},
	{
		name: "envoy-a-refund-of-none-gives-back", file: "internal/envoy/service.go",
		old: "case q.hits == 0:",
		new: "case q.hits == 0 && !q.refund:",
		by:  "./internal/envoy TestDecisionsInMemory",
	},
	{
		name: "envoy-counts-begin-anew-with-a-file", file: "internal/envoy/service.go",
		old: "previous = same.counter.limiter",
		new: "",
		by:  "./internal/envoy TestFilesAreReadAgain",
	},
	{
		name: "envoy-streams-without-a-request-last", file: "internal/envoy/silent.go",
		old: "time.AfterFunc(firstWithin,",
		new: "time.AfterFunc(1000*firstWithin,",
		by:  "./internal/envoy TestStreamsWithoutARequestEnd",
	},
	{
		name: "envoy-watches-are-without-number", file: "internal/envoy/server.go",
		old: "s.watches.Add(1) > mostWatches {",
		new: "s.watches.Add(1) > 1<<40 {",
		by:  "./internal/envoy TestStreamsWithoutARequestEnd",
	},
	{
		name: "envoy-refused-watches-take-a-place", file: "internal/envoy/server.go",
		old: "\t\ts.watches.Add(-1)\n",
		new: "",
		by:  "./internal/envoy TestRefusedWatchesTakeNoPlace",
	},
	{
		name: "envoy-watches-end-like-requests", file: "internal/envoy/silent.go",
		old: "if q.leave(s); s.lasts {",
		new: "if q.leave(s); false {",
		by:  "./internal/envoy TestRefusedWatchesTakeNoPlace",
	},
	{
		name: "envoy-streams-of-an-address-are-without-number", file: "internal/envoy/silent.go",
		old: "of.Len() > mostSilentOfClient",
		new: "of.Len() > 1000*mostSilentOfClient",
		by:  "./internal/envoy TestStreamsWithoutAMessageAreBounded",
	},
	{
		name: "envoy-streams-of-all-are-without-number", file: "internal/envoy/silent.go",
		old: "q.all.Len() > mostSilent:",
		new: "q.all.Len() > 1000*mostSilent:",
		by:  "./internal/envoy TestStreamsWithoutAMessageAreBounded",
	},
	{
		name: "envoy-the-newest-stream-ends", file: "internal/envoy/silent.go",
		old: "oldest = of.Front().Value.(*stream)",
		new: "oldest = of.Back().Value.(*stream)",
		by:  "./internal/envoy TestStreamsWithoutAMessageAreBounded",
	},
	{
		name: "envoy-streams-with-a-message-count", file: "internal/envoy/silent.go",
		old: "if q.leave(s); s.lasts {",
		new: "if s.lasts {",
		by:  "./internal/envoy TestStreamsWithoutAMessageAreBounded",
	},
	{
		name: "envoy-a-lowered-limit-fails-requests", file: "internal/envoy/service.go",
		old: "errors.AsType[*algorithms.CostError](err); !lowered {",
		new: "errors.AsType[*algorithms.CostError](err); !lowered || true {",
		by:  "./internal/envoy TestNoRequestFailsBecauseOfAReload",
	},
	{
		name: "envoy-requests-wait-for-files", file: "internal/envoy/service.go",
		old: "s.reloading.Lock()\n\tdefer s.reloading.Unlock()",
		new: "s.mu.Lock()\n\tdefer s.mu.Unlock()",
		by:  "./internal/envoy TestNoRequestFailsBecauseOfAReload",
	},
	{
		name: "a-protocol-that-is-not-the-servers", file: "internal/guard/tls.go",
		old: "config.NextProtos = []string{protocol}",
		new: "config.NextProtos = []string{\"http/1.1\", protocol}",
		by:  "./internal/envoy TestClientsThatAlsoSpeakHTTP1GetHTTP2",
	},
	{
		name: "an-expired-certificate-replaces-a-valid-one", file: "internal/guard/tls.go",
		old: "expired(next) && !expired(k.Current())",
		new: "expired(next) && expired(k.Current())",
		by:  "./internal/guard TestClientsAreKnownOverTLSAndFilesAreFollowed",
	},
	{
		name: "routes-beside-refused-policies", file: "cmd/admitter/serve.go",
		old: "if err := p.Reload(ctx, reloadable(o, next)); err != nil {",
		new: "_ = beside.reload(next)\n\t\t\t" +
			"if err := p.Reload(ctx, reloadable(o, next)); err != nil {",
		by: "./cmd/admitter TestRoutesOfOutboundCallsAreFollowed",
	},
	{
		name: "mended-files-leave-the-configuration-refused", file: "internal/daemon/daemon.go",
		old: "beside.Changed() && p.failed;",
		new: "beside.Changed() && false;",
		by:  "./cmd/admitter TestAConfigurationAppliesOnceAnotherFileIsMended",
	},
	{
		name: "envoy-shadow-fails-with-the-store", file: "internal/envoy/service.go",
		old: "if err != nil && !l.Shadow {",
		new: "if err != nil {",
		by:  "./internal/envoy TestWithoutTheStore",
	},

	// Tags.

	{
		name: "tags-of-others-are-cancelled", file: "admission/manage/tagged.go",
		old: "|| !slices.Contains(job.Tags(j.Header), tag)",
		new: "",
		by:  ". TestJobsAreCancelledByTheirTag",
	},
	{
		name: "a-tag-is-looked-for-in-one-page", file: "admission/manage/tagged.go",
		old: "for err == nil && after < last {",
		new: "for err == nil && after == start && after < last {",
		by:  ". TestJobsAreCancelledByTheirTag",
	},

	// Buckets by age, lateness and refusals.

	{
		name: "the-oldest-are-last", file: "workers/internal/valve/inspect.go",
		old: "return -stored.UnixNano()",
		new: "return stored.UnixNano()",
		by:  "./workers/internal/valve TestOldestBuckets",
	},
	{
		name: "what-only-runs-is-old", file: "workers/internal/valve/inspect.go",
		old: "return math.MinInt64",
		new: "return 0",
		by:  "./workers/internal/valve TestOldestBuckets",
	},
	{
		name: "the-latest-are-the-deepest", file: "workers/internal/valve/inspect.go",
		old: "_, late := v.lateMS(b, l.asked)",
		new: "late := int64(b.held)",
		by:  "./workers/internal/valve TestLatestBuckets",
	},
	{
		name: "policies-are-listed-by-depth-alone", file: "admission/manage/buckets.go",
		old: "return b.HeadAgeMS",
		new: "return int64(b.Depth)",
		by:  "./admission/httpapi TestManageBuckets",
	},
	{
		name: "the-most-refused-are-in-no-order", file: "admission/manage/buckets.go",
		old: "cmp.Compare(b.Refused, a.Refused), ",
		new: "",
		by:  ". TestBucketsAreListedByRefusals",
	},
	{
		name: "a-pause-is-lateness", file: "workers/internal/valve/gates.go",
		old: "if c != byPaused {",
		new: "if c != notHeld {",
		by:  "./workers/internal/valve TestLatestBuckets",
	},

	// Last changes of policies.

	{
		name: "a-file-forgets-what-a-policy-became", file: "policy/store/policies.go",
		old: "next.Last = current.Last.Next(before, p, time.Now())",
		new: "next.Last = current.Last",
		by:  "./policy/store TestTheLastChangeOfAPolicyIsKept",
	},
	{
		name: "a-change-of-nothing-is-news", file: "policy/entry.go",
		old: "if len(changed) == 0 {",
		new: "if false {",
		by:  "./policy/store TestTheLastChangeOfAPolicyIsKept",
	},

	// Policies' masters, lives and levers.

	{
		name: "the-api-writes-a-files-policy", file: "policy/store/life.go",
		old: "case ofFile && (a == written || a == condemned || a == offered):",
		new: "case ofFile && (a == condemned || a == offered):",
		by:  "./policy/store TestTheAPICannotChangeAFilesPolicy",
	},
	{
		name: "a-file-takes-a-policy-of-the-api", file: "policy/store/life.go",
		old: `n.Set == "" && !n.Draining:`,
		new: `n.Set == "none" && !n.Draining:`,
		by:  "./policy/store TestAFilesSetIsReplacedAsASet",
	},
	{
		name: "what-left-its-file-is-still-the-files", file: "policy/store/life.go",
		old: "n.Source, n.Draining = policy.SourceAPI, a == pruned",
		new: "n.Draining = a == pruned",
		by:  "./policy/store TestOneFunctionSaysWhatMayHappenNext",
	},
	{
		name: "a-live-policy-is-forgotten", file: "policy/store/life.go",
		old: "case a == drained && !n.Draining:",
		new: "case false:",
		by:  "./policy/store TestOneFunctionSaysWhatMayHappenNext",
	},
	{
		name: "a-policy-is-forgotten-before-its-overrides", file: "policy/store/life.go",
		old: `		func() error { return s.table.DeleteAll(ctx, name+".>") },` + "\n",
		new: "",
		by:  "./policy/store TestTheNextProcessCompletesWhatADeadOneBegan",
	},
	{
		name: "a-truncated-file-is-taken", file: "policy/store/sets.go",
		old: "2*n > c.members",
		new: "false",
		by:  "./policy/store TestATruncatedFileIsRefused",
	},
	{
		name: "an-empty-file-is-taken", file: "policy/store/sets.go",
		old: "|| len(f.Policies) == 0)",
		new: "&& len(f.Policies) > 0)",
		by:  "./policy/store TestATruncatedFileIsRefused",
	},
	{
		name: "an-old-text-returns-by-a-restart", file: "policy/store/sets.go",
		old: "newest = at <= 0 || f.Again",
		new: "newest = true",
		by:  "./policy/store TestTheNewestTextOfASetWins",
	},
	{
		name: "an-old-text-never-returns", file: "policy/store/sets.go",
		old: "newest = at <= 0 || f.Again",
		new: "newest = at <= 0",
		by:  "./policy/store TestTheNewestTextOfASetWins",
	},
	{
		name: "an-old-text-returns-at-once", file: "internal/node/policies.go",
		old: "if now.Sub(f.rival) < f.RetakeAfter {",
		new: "if false {",
		by:  "./internal/node TestATextReturnsOnceEveryProcessHasIt",
	},
	{
		name: "a-lever-outlasts-its-time", file: "policy/lever.go",
		old: "!now.Before(*one.Expires)",
		new: "false",
		by:  "./policy TestLevers",
	},
	{
		name: "a-lever-ends-others", file: "policy/lever.go",
		old: "one.Override, err = one.Patch(ended)",
		new: "one.Override, err = (Override{}).Patch(ended)",
		by:  "./policy TestLevers",
	},
	{
		name: "a-lever-lowers-a-capacity", file: "policy/override.go",
		old: "p.Capacity = max(p.Capacity, *o.Capacity)",
		new: "p.Capacity = *o.Capacity",
		by:  "./policy/store TestALeverIsApartFromWhatTheMasterWrites",
	},
	{
		name: "a-released-target-loses-its-file", file: "policy/store/life.go",
		old: "n.TargetSource = policy.SourceFile // also",
		new: "n.TargetSource = policy.SourceAPI // also",
		by:  ". TestARateChangesWithATargetFromTheFile",
	},

	// Changed jobs.

	{
		name: "an-edit-is-not-handed-over", file: "workers/internal/valve/handover.go",
		old: "h.Through, h.Edits = p.tellsThrough(), p.edits.records()",
		new: "h.Through = p.tellsThrough()",
		by:  "./workers/internal/valve TestEditsSurviveTheirOwner",
	},
	{
		name: "an-edit-is-answered-before-it-is-stored", file: "workers/internal/valve/edits.go",
		old: "p.edits.noted = p.unnoted.noted.Begun + 1\n",
		new: "",
		by:  "./workers/internal/valve TestEditsAreBoundedAndConfirmed",
	},
	{
		name: "an-event-is-a-line", file: "admission/outbound/events.go",
		old: "		case len(line) == 0:\n",
		new: "		case len(line) == 0, len(data) > 0:\n",
		by:  "./admission/outbound TestUsageIsSettledByAnyEventStream",
	},
	{
		name: "events-end-at-a-line-feed-alone", file: "admission/outbound/events.go",
		old: `bytes.IndexAny(rest, "\r\n")`,
		new: `bytes.IndexAny(rest, "\n")`,
		by:  "./admission/outbound TestUsageIsSettledByAnyEventStream",
	},
	{
		name: "no-usage-of-gemini", file: "admission/outbound/usage.go",
		old: "	n := max(u.Total, u.GeminiTotal)\n",
		new: "	n := u.Total\n	u.GeminiInput, u.Candidates = 0, 0\n",
		by:  "./admission/outbound TestUsageIsSettledByAnyEventStream",
	},
	{
		name: "a-denied-asking-is-a-redirection", file: "algorithms/redisstore/denied.go",
		old: "			d.note(command)\n",
		new: "			_ = command\n",
		by:  "./cmd/admitter TestKeysOfAMovingSlotOfARedisCluster",
	},
	{
		name: "a-shortage-of-files-is-the-target's", file: "workers/handler.go",
		old: "	if files.Short(err) {",
		new: "	if false {",
		by:  "./cmd/admitter TestJobsWaitForFileDescriptors",
	},
	{
		name: "no-word-on-more-workers-than-files", file: "workers/watch.go",
		old: "notice.If(workers > most-otherFiles)",
		new: "notice.If(false)",
		by:  "./cmd/admitter TestJobsWaitForFileDescriptors",
	},
	{
		name: "no-bound-where-the-account-requires-one", file: "queue/internal/jsapi/account.go",
		old: "	if !HasCode(err, codeMaxBytesRequired) {",
		new: "	if true {",
		by:  "./queue TestAnAccountMayRequireBoundsOfStreams",
	},
	{
		name: "streams-beyond-the-account's-largest", file: "queue/storage.go",
		old: "	if s.most > 0 {",
		new: "	if false {",
		by:  "./queue TestAnAccountMayRequireBoundsOfStreams",
	},
	{
		name: "a-second-installation", file: "queue/apart.go",
		old: "		if err == nil && string(m.Data) != mine {",
		new: "		if false {",
		by:  "./queue TestASecondInstallationInReachIsRefused",
	},
	{
		name: "records-outside-of-the-domain", file: "queue/internal/jsapi/account.go",
		old: `	return c.API(apiPrefix + "." + subject)`,
		new: `	return subject`,
		by:  ". TestAProcessAtALeafNodeUsesTheDomainOfTheHub",
	},
	{
		name: "a-parent's-memory-limit", file: "internal/container/container.go",
		old: "			if group == \"/\" {",
		new: "			if true {",
		by:  "./internal/container TestTheLeastLimitOfTheControlGroupsHolds",
	},
	{
		name: "memory-beyond-the-container", file: "internal/container/container.go",
		old: "return min(most, Memory()/n)",
		new: "return most",
		by:  "./cmd/admitter TestDefaultsOfMemoryFollowGOMEMLIMIT",
	},
	{
		name: "no-bound-of-the-go-heap", file: "internal/daemon/heap.go",
		old: "debug.SetMemoryLimit(most / 10 * 9)",
		new: "",
		by:  "./cmd/admitter TestProgramsBoundTheGoHeap",
	},
	{
		name: "resume-leaves-a-cool-down", file: "workers/internal/valve/edits.go",
		old: "	b.cool = now\n	b.own().throttles = 0\n",
		new: "	b.own().throttles = 0\n",
		by:  "./workers/internal/valve TestResumeEndsACoolDown",
	},
	{
		name: "the-end-of-a-cool-down-is-answered-before-it-is-stored",
		file: "workers/internal/valve/edits.go",
		old:  "	b.Part.noteEdit()\n", new: "",
		by: "./workers/internal/valve TestTheEndOfACoolDownIsStoredBeforeTheAnswer",
	},
	{
		name: "resume-keeps-the-cool-downs", file: "admission/manage/overrides.go",
		old: "	if o.Changed = nil; err == nil && !paused {",
		new: "	if o.Changed = nil; err == nil && paused {",
		by:  "./cmd/admitter TestResumeEndsAPauseThatTheTargetAskedFor",
	},
	{
		name: "resume-probes-no-target", file: "workers/internal/valve/breaker.go",
		old: "			k.at = now\n			sooner++\n",
		new: "			sooner++\n",
		by:  "./workers/internal/valve TestResumeProbesATargetThatWasDown",
	},
	{
		name: "a-mistake-of-the-worker-opens-no-breaker", file: "workers/internal/valve/settle.go",
		old: "			v.uncallable(j, o.Error, now)\n",
		new: "",
		by:  "./workers/internal/valve TestAMistakeOfTheWorkerCountsNoAttempt",
	},
	{
		name: "a-missing-file-costs-attempts", file: "workers/handler.go",
		old: "	} else if IsMisconfigured(err) {\n		o.Kind",
		new: "	} else if false {\n		o.Kind",
		by:  "./cmd/admitter TestAMissingFileOfATargetCostsNoAttempt",
	},
	{
		name: "a-missing-file-is-the-target's", file: "workers/httptarget/secret.go",
		old: "	return value, workers.Misconfigured(err)",
		new: "	return value, err",
		by:  "./workers/httptarget TestHeadersFromFiles",
	},
	{
		name: "routes-without-a-policy-in-silence", file: "cmd/admitter/routes.go",
		old: "	r.observe(counts)\n",
		new: "	_ = counts\n",
		by:  "./cmd/admitter TestARouteIsReportedUntilItsPolicyAndItsFilesAreThere",
	},
	{
		name: "callers-of-the-proxy-see-paths-of-files", file: "admission/outbound/refuse.go",
		old: "	case unread: //",
		new: "	case unread && false: //",
		by:  "./admission/outbound TestMissingFilesOfTLSAreNamedToOperatorsAlone",
	},
	{
		name: "a-route-without-its-files-is-no-fault", file: "admission/outbound/faults.go",
		old: "(r.TLS).Config(); err != nil {",
		new: "(r.TLS).Config(); err != nil && false {",
		by:  "./admission/outbound TestFaultsOfRoutesAreNamed",
	},
	{
		name: "tokens-that-nothing-counts", file: "admission/outbound/faults.go",
		old: "		if !slices.Contains(costs, cost) {",
		new: "		if false {",
		by:  "./admission/outbound TestFaultsOfRoutesAreNamed",
	},
	{
		name: "assert-rate-ignores-limits", file: "workers/workerstest/workerstest.go",
		old: "				broken = append(broken, b)\n",
		new: "",
		by:  "./workers/workerstest TestAssertRateJudgesLimits",
	},
	{
		name: "a-list-in-place-of-a-queue", file: "internal/decode/decode.go",
		old: "cmp.Or(u.UnmarshalJSON([]byte(\"[]\")), v.want(\"text\"))",
		new: "cmp.Or(v.want(\"text\"))",
		by:  "./policy TestParseRefuses",
	},
	{
		name: "a-port-in-use-without-its-setting", file: "queue/embedded/embedded.go",
		old: "		err = cmp.Or(s.options.taken(), err)\n",
		new: "",
		by:  "./queue/embedded TestClearErrors",
	},
	{
		name: "no-hint-at-the-last-words", file: "internal/nearest/nearest.go",
		old: "strings.HasSuffix(whole, \"_\"+word) ||",
		new: "",
		by:  "./internal/nearest TestTo",
	},
	{
		name: "an-edit-of-another-stream", file: "workers/internal/valve/edits.go",
		old: "edit.Job == stored {",
		new: "edit.Job != 1 {",
		by:  "./workers/internal/valve TestAnEditOfAnotherJobOfItsSequenceDoesNothing",
	},
	{
		name: "an-edited-job-sinks", file: "workers/internal/valve/edits.go",
		old: "j = p.reach(seq)",
		new: "",
		by:  "./workers/internal/valve TestWaitingJobsAreEdited",
	},
	{
		name: "edits-without-a-bound", file: "workers/internal/valve/edits.go",
		old: "len(p.edits.jobs) >= MostEdits {",
		new: "len(p.edits.jobs) < 0 {",
		by:  "./workers/internal/valve TestEditsAreBoundedAndConfirmed",
	},
	{
		name: "every-backoff-is-cut-short", file: "workers/internal/valve/valve.go",
		old: "&& edit.Run != j.ordinal():",
		new: "&& edit.Run == 0:",
		by:  "./workers/internal/valve TestABackoffIsCutShortOnce",
	},

	// The hottest keys, and histories of ended jobs.

	{
		name: "any-key-makes-room-for-a-hotter", file: "admission/watch/hottest.go",
		old: "counted(other)+other.More <",
		new: "counted(other)+other.More >",
		by:  "./admission/watch TestTheHottestKeysAreFoundAmongMany",
	},

	{
		name: "history-outlives-its-time", file: "queue/history.go",
		old: "max(keep, time.Second).Truncate(time.Second)",
		new: "time.Hour",
		by:  "./queue TestAHistoryForgets",
	},
	{
		name: "history-loses-in-silence", file: "queue/history.go",
		old: "h.lost()\n\t\tif errors.Is",
		new: "if errors.Is",
		by:  "./queue TestLostHistoryIsCounted",
	},
	{
		name: "history-is-not-made-again", file: "queue/history.go",
		old: "if errors.Is(err, jetstream.ErrNoStreamResponse) {",
		new: "if false {",
		by:  "./queue TestLostHistoryIsCounted",
	},
	{
		name: "history-keeps-no-answer", file: "workers/handler.go",
		old: "!j.Awaited() && !j.Kept()",
		new: "!j.Awaited()",
		by:  ". TestKeepDone",
	},
	{
		name: "history-in-backups", file: "queue/kept.go",
		old: "historyInfix: 6",
		new: "historyInfix: 4",
		by:  "./queue TestAHistoryIsReadFromItsEnd",
	},

	// Questions over NATS.

	{
		name: "reader-of-all-policies", file: "queue/roles/roles.go",
		old: "each(\"job.%s.*\", \"bucket.%s.>\")",
		new: "[]string{prefix + \".job.>\", prefix + \".bucket.>\"}",
		by:  "./cmd/admitter TestRolesOfTheEmbeddedServer",
	},
	{
		name: "questions-with-a-body-are-answered", file: "admission/natsapi/service.go",
		old: "if len(r.Data()) > 0 {",
		new: "if false {",
		by:  ". TestNATSAnswersAsHTTPDoes",
	},

	// Callbacks.

	{
		name: "outcome-of-a-second-run-is-another", file: "workers/callback.go",
		old: "job.IdempotencyKey(nil, policy, created, seq), tags",
		new: "time.Now().String(), tags",
		by:  ". TestACrashAfterACallbackDoesNotRepeatIt",
	},
	{
		name: "callback-lost-in-silence", file: "workers/callback.go",
		old: "Tags: c.tags, Name: reason,",
		new: "Tags: c.tags,",
		by:  ". TestALostCallbackIsReported",
	},
	{
		name: "tags-spoil-callbacks", file: "workers/callback.go",
		old: "return job.CheckTag(t) != nil",
		new: "return false",
		by:  ". TestAMalformedJobIsReported",
	},
	{
		name: "receivers-have-a-bucket-for-each-spelling", file: "workers/callback.go",
		old: "strings.ToLower(to.Hostname())",
		new: "to.Hostname()",
		by:  "./workers TestAReceiverHasOneBucket",
	},
	{
		name: "secrets-go-to-whoever-is-called", file: "policy/headers.go",
		old: "{\"headers\", len(t.Headers) > 0}",
		new: "{\"headers\", false}",
		by:  "./policy TestValidate",
	},
	{
		name: "callbacks-of-a-file-reach-this-machine", file: "workers/httptarget/httptarget.go",
		old: "if !p.Target.Calls() {",
		new: "if true {",
		by:  ". TestForbiddenCallbackURLs",
	},
	{
		name: "anybody-posts-outcomes", file: "admission/submit.go",
		old: "if p.Target.Calls() {",
		new: "if false {",
		by:  ". TestForbiddenCallbackURLs",
	},

	{
		name: "demo-judges-by-the-clock-of-the-api", file: "internal/demo/scene.go",
		old: "exceeded(starts)",
		new: "exceeded(seen)",
		by:  "./internal/demo TestReportNamesTheBrokenLaw",
	},
	{
		name: "demo-ignores-what-the-api-counts", file: "internal/demo/scene.go",
		old: "if f.arrived > apiLimit {",
		new: "if false {",
		by:  "./internal/demo TestReportNamesTheBrokenLaw",
	},
	{
		name: "chaos-ignores-what-the-target-counts", file: "internal/chaos/judge.go",
		old: "f.arrivals(&v)",
		new: "",
		by:  "./internal/chaos TestEachViolationIsNoticed",
	},

	// The auditor, limits in shadow, and schedules.

	{
		name: "ticks-of-a-schedule-are-one", file: "queue/ticking.go",
		old: "tick.ID += \" \" + next",
		new: "_ = next",
		by:  ". TestEachTickBecomesOneJob",
	},
	{
		name: "ticks-without-an-id", file: "admission/schedules/schedules.go",
		old: "header[job.HeaderIdempotencyKey] = []string{id}",
		new: "",
		by:  ". TestATickBecomesOneJobThoughTheServerIsKilled",
	},
	{
		name: "runs-by-hand-are-ticks", file: "queue/ticks.go",
		old: "if newer && !hand {",
		new: "if newer {",
		by:  "./queue TestTheLastRunIsNotedBesideTheLastTick",
	},
	{
		name: "missed-ticks-have-had-their-job", file: "queue/ticks.go",
		old: "if ran.Job > 0 {",
		new: "if true {",
		by:  "./queue TestTheLastRunIsNotedBesideTheLastTick",
	},
	{
		name: "ends-of-runs-are-forgotten-by-a-late-note", file: "queue/ticks.go",
		old: "n.End = cmp.Or(ran.End, n.End)",
		new: "n.End = ran.End",
		by:  "./queue TestTheLastRunIsNotedBesideTheLastTick",
	},
	{
		name: "runs-of-former-policies-end-later-ones", file: "queue/ticks.go",
		old: "ran.Job == n.Job && (hand || !newer)",
		new: "ran.Job == n.Job",
		by:  "./queue TestTheLastRunIsNotedBesideTheLastTick",
	},
	{
		name: "all-runs-of-schedules-are-done", file: "queue/ticks.go",
		old: "ran.End = end.How",
		new: "_ = end.How",
		by:  ". TestAScheduleSaysHowItsLastRunEnded",
	},
	{
		name: "schedules-of-all-for-everybody", file: "admission/httpapi/schedules.go",
		old: "Policy: \"*\", May: at.mayRead,",
		new: "Policy: \"*\",",
		by:  ". TestAClientSeesTheSchedulesOfItsPolicies",
	},
	{
		name: "pause-leaves-the-schedule", file: "queue/schedule.go",
		old: "return b.purgeSchedules(ctx, stale...)",
		new: "return b.purgeSchedules(ctx, stale[:0]...)",
		by:  ". TestEachTickBecomesOneJob",
	},
	{
		name: "schedules-are-written-at-each-reading", file: "admission/schedules/file.go",
		old: "if slices.Contains(written, brief(e)) {",
		new: "if false {",
		by:  ". TestASchedulesTextInTheFileCountsOnce",
	},
	{
		name: "schedules-of-the-file-end-a-pause", file: "admission/schedules/file.go",
		old: "wanted.Paused = was.Paused",
		new: "_ = was.Paused",
		by:  ". TestASchedulesTextInTheFileCountsOnce",
	},
	{
		name: "schedules-of-others-leave-with-the-file", file: "admission/schedules/file.go",
		old: "if left.Set != set {",
		new: "if false {",
		by:  ". TestASchedulesTextInTheFileCountsOnce",
	},
	{
		name: "admitters-write-schedules-over-each-other", file: "queue/schedule.go",
		old: "b.js.PublishMsg(ctx, m, o...)",
		new: "b.js.PublishMsg(ctx, m, o[:0]...)",
		by:  ". TestAdmittersWithOneFileWriteItOnce",
	},
	{
		name: "instants-of-the-file-come-back", file: "admission/schedules/file.go",
		old: "return ok && err == nil && t.Before(time.Now())",
		new: "return ok && err != nil && t.Before(time.Now())",
		by:  ". TestAnInstantOfTheFileIsOneJob",
	},
	{
		name: "schedules-that-are-there-are-written", file: "admission/schedules/file.go",
		old: "case same(was, wanted):",
		new: "case false:",
		by:  ". TestAHalfWrittenSetIsNotRepeated",
	},
	{
		name: "names-of-schedules-are-any-tokens", file: "admission/httpapi/schedules.go",
		old: "!policy.IsName(at.policy) || !policy.IsName(name)",
		new: "!policy.IsName(at.policy)",
		by:  ". TestNoNameReachesTheSchedulesOfOthers",
	},
	{
		name: "cron-times-of-the-old-clock", file: "internal/cron/cron.go",
		old: "until.UTC().Add(shift)); ok",
		new: "end.UTC().Add(shift)); ok",
		by:  "./internal/cron TestTimesAreThoseThatAZonesClocksShow",
	},
	{
		name: "cron-steps-beyond-the-range", file: "internal/cron/cron.go",
		old: "case step > uint64(to-from+1):",
		new: "case false:",
		by:  "./internal/cron TestFieldsAreReadAndRefusedByName",
	},
	{
		name: "cron-sunday-is-no-seven", file: "internal/cron/cron.go",
		old: "most++",
		new: "",
		by:  "./internal/cron TestFieldsAreReadAndRefusedByName",
	},
	{
		name: "cron-zones-before-the-pattern", file: "admission/schedules/when.go",
		old: "strings.HasPrefix(when, \"CRON_TZ=\")",
		new: "false",
		by:  "./admission/schedules TestARefusalNamesThePartThatIsWrong",
	},
	{
		name: "cron-dates-that-never-come", file: "admission/schedules/when.go",
		old: "if err == nil && times.Next(",
		new: "if err == nil && !times.Next(",
		by:  "./admission/schedules TestARefusalNamesThePartThatIsWrong",
	},
	{
		name: "cron-outages-are-made-up-in-full", file: "queue/ticking.go",
		old: "from.Before(recent)",
		new: "false",
		by:  ". TestAnOutageOfACronPatternsTimesIsOneJob",
	},
	{
		name: "cron-timers-decide", file: "queue/ticking.go",
		old: "if at.After(now) {",
		new: "if false {",
		by:  ". TestATimerOfAnotherTimeMakesNoJob",
	},
	{
		name: "cron-one-timer-only", file: "queue/ticking.go",
		old: "if err := b.setTimerIfNone(ctx, s, from); err != nil {",
		new: "if err := error(nil); err != nil {",
		by:  ". TestEachTimeOfACronPatternBecomesOneJob",
	},
	{
		name: "cron-former-patterns-stay-the-servers", file: "queue/ticking.go",
		old: "former = append(former, s)",
		new: "",
		by:  ". TestASchedulesFormerFormGoesOn",
	},
	{
		name: "cron-pauses-leave-the-timer", file: "queue/schedule.go",
		old: "[]string{on, next}",
		new: "[]string{on}",
		by:  ". TestAPausedOrRemovedCronScheduleHasNoTimer",
	},
	{
		name: "shadow-holds-back-at-the-door", file: "admission/limiter/shadow.go",
		old: "checked.Allowed, checked.Granted = true, n",
		new: "",
		by:  "./admission/limiter TestAPolicyInShadowRefusesNothing",
	},
	{
		name: "share-is-granted-at-each-outage", file: "admission/limiter/guard.go",
		old: "time.Since(s.last)/2 < q.Window",
		new: "q.Window < 0",
		by:  "./admission/limiter TestASharesMemoryIsFreedOnceItsKeysAreAsNew",
	},
	{
		name: "redis-that-refuses-scripts-is-up", file: "algorithms/redisstore/call.go",
		old: "if err != nil && !slices.ContainsFunc(ofOneSlot,",
		new: "if err != nil && !isReply(err) && !slices.ContainsFunc(ofOneSlot,",
		by:  "./admission/limiter TestAScriptThatMayNotWriteIsAnOutage",
	},
	{
		name: "late-calls-of-a-cluster-count", file: "algorithms/redisstore/call.go",
		old: "if !client.apart {",
		new: "if !client.apart && !client.slotted {",
		by:  "./algorithms/redisstore TestALateCallOfAClusterTakesNothing",
	},
	{
		name: "dead-master-has-no-successor", file: "algorithms/redisstore/call.go",
		old: "ok && outage != nil {",
		new: "ok && outage == nil {",
		by:  "./algorithms/redisstore TestASuccessorInAClusterIsFound",
	},
	{
		name: "frozen-master-delays-all-keys", file: "algorithms/redisstore/flight.go",
		old: "address = master.Options().Addr",
		new: "_ = master",
		by:  "./algorithms/redisstore TestAFrozenMasterDelaysOnlyItsKeys",
	},
	{
		name: "frozen-master-is-an-outage", file: "algorithms/redisstore/call.go",
		old: "last > 0 && c.elapsed()-last < time.Minute",
		new: "last > 0 && c.elapsed()-last < 0",
		by:  "./algorithms/redisstore TestAFrozenMasterDelaysOnlyItsKeys",
	},
	{
		name: "shadow-holds-starts-back", file: "workers/internal/quota/quota.go",
		old: "slices.DeleteFunc(p.Enforced(),",
		new: "slices.DeleteFunc(slices.Clone(p.Limits),",
		by:  "./workers/internal/quota TestAShadowLimitReportsItsDelay",
	},
	{
		name: "shadow-begins-with-the-first-change", file: "workers/internal/valve/valve.go",
		old: "quota.New(p), candidates: quota.NewCandidates(p)}",
		new: "quota.New(p)}",
		by:  "./workers TestALimitInShadowHoldsNothingBack",
	},
	{
		name: "shadow-tells-no-delays", file: "workers/internal/quota/shadow.go",
		old: "at.Own > now.Own {",
		new: "false {",
		by:  "./workers/internal/quota TestAShadowLimitReportsItsDelay",
	},
	{
		name: "audit-forgets-where-windows-begin", file: "workers/audit/law.go",
		old: "l.take(&l.low, l.recent[l.near])",
		new: "",
		by:  "./workers/audit TestAllWindowsAreJudgedFromAFewMarks",
	},
	{
		name: "audit-blind-to-lost-events", file: "workers/audit/judge.go",
		old: "lost := e.N != s.number+1",
		new: "lost := false",
		by:  "./workers/audit TestLostEventsMakeFiguresIncomplete",
	},
	{
		name: "audit-judges-who-shares-alone", file: "workers/audit/judge.go",
		old: "b := j.shared[l.Shared]",
		new: "b := j.shared[a.policy.Name]",
		by:  "./workers/audit TestPoliciesThatShareALimitAreCountedTogether",
	},
	{
		name: "audit-mistakes-jobs-of-policies", file: "workers/audit/judge.go",
		old: "return uint64(i)<<inStream | seq",
		new: "return seq",
		by:  "./workers/audit TestPoliciesThatShareALimitAreCountedTogether",
	},
	{
		name: "audit-trusts-others-who-share", file: "workers/audit/judge.go",
		old: "s.starts.lostAt = now",
		new: "s.starts.since = now",
		by:  "./workers/audit TestPoliciesThatShareALimitAreCountedTogether",
	},
	{
		name: "audit-judges-by-limits-of-before", file: "workers/audit/judge.go",
		old: "if e.At.Before(b.ignore) {",
		new: "if false {",
		by:  "./workers/audit TestStartsAfterAChangeAreNotJudgedUntilAllFollowIt",
	},
	{
		name: "audit-compares-processes", file: "workers/audit/judge.go",
		old: "if b.source != e.From {",
		new: "if false {",
		by:  "./workers/audit TestOnlyRunsThatAreCertainlyOpenCount",
	},
	{
		name: "audit-mistakes-attempts", file: "workers/audit/open.go",
		old: "e.From == r.source && e.Started.UnixNano() == r.at",
		new: "true",
		by:  "./workers/audit TestOnlyRunsThatAreCertainlyOpenCount",
	},
	{
		name: "audit-trusts-clocks", file: "workers/audit/open.go",
		old: "*time.Millisecond-apart)",
		new: "*time.Millisecond)",
		by:  "./workers/audit TestOnlyRunsThatAreCertainlyOpenCount",
	},
	{
		name: "audit-counts-from-the-start", file: "workers/audit/open.go",
		old: "open := end.AnswerMS",
		new: "open := int64(0)",
		by:  "./workers/audit TestOpenRunsCountWithThoseAnsweredInTheWindow",
	},
	{
		name: "audit-ignores-the-end", file: "workers/audit/open.go",
		old: "open = max(open, end.DurationMS)",
		new: "",
		by:  "./workers/audit TestUsageCountsFromTheEnd",
	},
	{
		name: "audit-counts-estimates", file: "workers/audit/open.go",
		old: "run.units = min(units, n)",
		new: "run.units = max(units, n)",
		by:  "./workers/audit TestUsageCountsFromTheEnd",
	},
	{
		name: "audit-misses-runs-told-later", file: "workers/audit/open.go",
		old: "if c.sum += s.units; c.sum > fullest.sum {",
		new: "if c.sum > fullest.sum {",
		by:  "./workers/audit TestTheFullestInstantIsFound",
	},
	{
		name: "audit-counts-units-given-back", file: "workers/audit/open.go",
		old: `s.from != "" && !sent {`,
		new: "false {",
		by:  "./workers/audit TestUnsentRequestsDoNotCountForARate",
	},
	{
		name: "audit-compares-a-former-process", file: "workers/audit/open.go",
		old: "case s.arrives() && e.From == b.source:",
		new: "case s.arrives():",
		by:  "./workers/audit TestOnlyRunsThatAreCertainlyOpenCount",
	},
	{
		name: "end-tells-no-max-delay", file: "workers/handler.go",
		old: "open = took + s.maxDelay",
		new: "open = took",
		by:  "./workers TestTheEndOfARunTellsWhenItsUnitsCount",
	},

	// The lease, its fence and the leases of others.

	{
		name: "margin-removed", file: "workers/internal/core/lease.go",
		old: "sent.Add(c.options.Lease-c.margin())",
		new: "sent.Add(c.options.Lease)",
		by:  "./workers/internal/core TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "fence-late", file: "workers/internal/core/lease.go",
		old: "sent.Add(c.options.Lease-c.margin())",
		new: "sent.Add(c.options.Lease+c.options.Lease/5)",
		by:  "./workers/internal/core TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "renewal-timed-from-answer", file: "workers/internal/core/lease.go",
		old: "c.extend(revision, p.sent)",
		new: "c.extend(revision, now)",
		by:  "./workers/internal/core TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "renewed-too-late", file: "workers/internal/core/lease.go",
		old: "sent.Add(c.options.Lease/3)",
		new: "sent.Add(c.options.Lease)",
		by:  "./workers/internal/core TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "starts-without-a-connection", file: "workers/internal/core/core.go",
		old: "!c.Lease.Held || !c.Connected ||",
		new: "!c.Lease.Held ||",
		by:  "./workers/internal/core TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "starts-what-cannot-be-stored", file: "workers/internal/core/core.go",
		old: "!c.Connected || c.Unstorable ||",
		new: "!c.Connected ||",
		by:  "./workers/internal/core TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "hears-nothing-of-a-full-disk", file: "workers/drainer.go",
		old: "unstorable := d.broker.Unstorable() != nil",
		new: "unstorable := false",
		by:  "./workers TestNothingStartsWhileNothingCanBeStored",
	},
	{
		name: "waits-for-an-impossible-handover", file: "workers/drainer.go",
		old: "d.broker.Refused() != nil {",
		new: "false {",
		by:  "./workers TestADrainerDoesNotWaitForAHandoverThatCannotBeStored",
	},
	{
		name: "leaves-what-runs-on-a-full-disk", file: "workers/drainer.go",
		old: "d.core.Leaving && d.core.Running() == 0 && d.lender.idle()",
		new: "d.core.Leaving",
		by:  "./workers TestADrainerDoesNotWaitForAHandoverThatCannotBeStored",
	},
	{
		name: "drainer-not-told-of-the-disk", file: "internal/node/storage.go",
		old: "s.Drainer.Refuse(err)",
		new: "_ = err",
		by:  "./internal/e2e TestNothingStartsOnAFullDisk",
	},

	// Silences.

	{
		name: "stays-at-a-server-cut-off", file: "internal/natsconn/silence.go",
		old: "_ = s.nc.ForceReconnect()",
		new: "",
		by:  "./internal/natsconn TestAConnectionLeavesAServerThatIsCutOff",
	},
	{
		name: "found-servers-forgotten", file: "internal/natsconn/silence.go",
		old: "if len(s.servers) == 0 {",
		new: "if len(s.servers) >= 0 {",
		by:  "./internal/natsconn TestAConnectionLeavesAServerThatIsCutOff",
	},
	{
		name: "hops-while-all-are-silent", file: "internal/natsconn/silence.go",
		old: "s.moves.may(now) {",
		new: "now.After(s.moves.last) {",
		by:  "./internal/natsconn TestWhileAllServersAreSilentAConnectionMovesSeldom",
	},
	{
		name: "moves-at-a-fixed-pace", file: "internal/natsconn/silence.go",
		old: "min(2*m.pause, moveLast)",
		new: "moveAgain",
		by:  "./internal/natsconn TestThePauseBetweenMovesDoublesUntilTheyStop",
	},
	{
		name: "leaves-the-only-server", file: "internal/natsconn/silence.go",
		old: "if len(s.nc.Servers()) > 1 {\n\t\treturn true",
		new: "if len(s.nc.Servers()) > 0 {\n\t\treturn true",
		by:  "./internal/natsconn TestAConnectionDoesNotLeaveTheOnlyServer",
	},
	{
		name: "any-unanswered-call-is-a-silence", file: "queue/broker.go",
		old: "js.Silence = natsconn.NewSilence(nc, o.Logger, b.probe)",
		new: "js.Silence = natsconn.NewSilence(nc, o.Logger, func(context.Context) {})",
		by:  "./internal/natsconn TestAnAnswerToTheProbeEndsASilenceBeforeItCounts",
	},
	{
		name: "a-refusal-ends-a-silence", file: "queue/internal/jsapi/conn.go",
		old: "case store && err == nil:",
		new: "case store && (err == nil || IsRefusal(err)):",
		by:  "./queue/internal/jsapi TestOnlyWhatIsStoredEndsASilence",
	},
	{
		name: "a-read-ends-a-silence", file: "queue/internal/jsapi/conn.go",
		old: "case store && err == nil:",
		new: "case err == nil:",
		by:  "./queue/internal/jsapi TestOnlyWhatIsStoredEndsASilence",
	},
	{
		name: "refused-calls-are-not-counted", file: "admission/permits/permits.go",
		old: "is && c.Refused != nil {",
		new: "is && false {",
		by:  ". TestACallThatWouldStartTooLateIsRefusedAtOnce",
	},
	{
		name: "calls-stay-at-a-server-cut-off", file: "admission/permits/permits.go",
		old: "if t.Nobody && k.client.Unanswered != nil {",
		new: "if false {",
		by:  ". TestAProgramLeavesAServerThatIsCutOff",
	},
	{
		name: "ready-while-nothing-is-stored", file: "internal/node/node.go",
		old: "nats.Err = n.Broker.Unstorable()",
		new: "nats.Err = nil",
		by:  ". TestAProgramLeavesAServerThatIsCutOff",
	},
	{
		name: "host-clock-counts", file: "workers/internal/timepiece/boottime_linux.go",
		old: "unix.CLOCK_BOOTTIME, &t",
		new: "unix.CLOCK_MONOTONIC, &t",
		by:  "./workers/internal/timepiece TestTheTimeAsleepIsCounted",
	},
	{
		name: "rang-and-not-set-again", file: "workers/internal/alarm/alarm.go",
		old: "a.at = pace.Never",
		new: "_ = pace.Never",
		by:  "./workers/internal/alarm TestAnAlarmThatHasRungRingsAgainForTheSameInstant",
	},
	{
		name: "unknown-renewal-is-ok", file: "workers/internal/core/core.go",
		old: "	case e.Revision == 0:\n",
		new: "	case e.Revision == 0 && p.Why != WhyRenew:\n",
		by:  "./workers/internal/core TestARenewalOfUnknownResultIsReadBack",
	},
	{
		name: "lease-nonce-unchecked", file: "workers/internal/core/lease.go",
		old: "if s.nonce == r.Nonce {",
		new: "if true {",
		by:  "./workers/internal/core TestARenewalOfUnknownResultIsReadBack",
	},
	{
		name: "own-lease-tombstone-ignored", file: "workers/internal/core/lease.go",
		old: `case found.Revision > c.Lease.revision:
			c.loseLease(now)`,
		new: "",
		by:  "./workers/internal/core TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "jump-unnoticed", file: "workers/internal/core/lease.go",
		old: "c.server.known, c.server.since, c.Lease.renewAt = false, now, now",
		new: "c.server.since, c.Lease.renewAt = now, now",
		by:  "./workers/internal/core TestNothingStartsAfterAJumpBeforeARenewalIsAnswered",
	},
	{
		name: "dates-stand-still-with-the-clocks", file: "workers/internal/core/lease.go",
		old: "v.Redate(now)",
		new: "_ = v",
		by:  "./workers/internal/core TestDatesHoldAfterTheClocksStoodStill",
	},
	{
		name: "stamp-from-before-a-jump-believed", file: "workers/internal/core/lease.go",
		old: " || c.Lease.sends[i].at < s.since {",
		new: " {",
		by:  "./workers/internal/core TestDatesHoldAfterTheClocksStoodStill",
	},
	{
		name: "redated-job-not-due-yet-stays-late", file: "workers/internal/valve/valve.go",
		old: "at = min(at, v.wall.instant(j.NotBefore, now))",
		new: "at = min(at, j.at)",
		by:  "./workers/internal/core TestDatesHoldAfterTheClocksStoodStill",
	},
	{
		name: "jump-does-not-hurry-the-renewal", file: "workers/internal/core/lease.go",
		old: "c.server.known, c.server.since, c.Lease.renewAt = false, now, now",
		new: "c.server.known, c.server.since = false, now",
		by:  "./workers/internal/core TestAJumpOfTheClocksIsFollowedByARenewalAtOnce",
	},
	{
		name: "clock-of-the-server-never-corrected", file: "workers/internal/core/lease.go",
		old: "if !s.known || most < s.least || least > s.most {",
		new: "if !s.known {",
		by:  "./workers/internal/core TestTheServersClockIsKnownToAFewMilliseconds",
	},
	{
		name: "slow-stamp-believed", file: "workers/internal/core/lease.go",
		old: "most-least > 2*int64(datesOff) && ",
		new: "false && ",
		by:  "./workers/internal/core TestNothingStartsByAnUncertainClock",
	},
	{
		name: "slow-stamps-never-believed", file: "workers/internal/core/lease.go",
		old: " && s.vague < mostVague {",
		new: " {",
		by:  "./workers/internal/core TestNothingStartsByAnUncertainClock",
	},
	{
		name: "claims-before-the-servers-clock-is-known", file: "workers/internal/core/core.go",
		old: " || !c.server.known {",
		new: " {",
		by:  "./workers/internal/core TestNothingIsClaimedBeforeTheServersClockIsKnown",
	},
	{
		name: "lease-conflict-keeps-all", file: "workers/internal/core/lease.go",
		old: "r.Tombstone || err != nil && !damaged ||",
		new: "err != nil && !damaged ||",
		by:  "./workers/internal/core TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "lost-lease-keeps-partitions", file: "workers/internal/core/lease.go",
		old: `c.dropShare(s)
		}
		s.state = shareIdle`,
		new: `_ = s
		}
		s.state = shareIdle`,
		by: "./workers/internal/core TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "identity-reused", file: "workers/internal/core/lease.go",
		old: "c.identities++",
		new: "c.identities = 1",
		by:  "./workers/internal/core TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "valve-keeps-the-old-name", file: "workers/internal/core/lease.go",
		old: "v.Self = c.Lease.Id",
		new: "_ = v",
		by:  "./workers/internal/core TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "tombstone-after-half-a-lease", file: "workers/internal/core/lease.go",
		old: "now.Since(p.seen) >= expires {",
		new: "now.Since(p.seen) >= expires/2 {",
		by:  "./workers/internal/core TestAPeerIsDeclaredDeadAfterItsWholeLease",
	},
	{
		name: "tombstone-a-tenth-early", file: "workers/internal/core/lease.go",
		old: "now.Since(p.seen) >= expires {",
		new: "now.Since(p.seen) >= expires*9/10 {",
		by:  "./workers/internal/core TestAPeerIsDeclaredDeadAfterItsWholeLease",
	},
	{
		name: "damaged-record-taken-at-once", file: "workers/internal/core/ownership.go",
		old: "(unknown || s.damaged != nil) && now.Since(s.seen) < c.options.Lease",
		new: "false",
		by:  "./workers/internal/core TestADamagedRecordIsReplacedAfterALease",
	},
	{
		name: "peers-wait-not-begun-anew", file: "workers/internal/core/core.go",
		old: "p.seen = now",
		new: "_ = p",
		by:  "./workers/internal/core TestAPeerIsDeclaredDeadAfterItsWholeLease",
	},
	{
		name: "tombstone-of-strangers", file: "workers/internal/core/lease.go",
		old: "!p.gone && !p.strange && !p.inFlight",
		new: "!p.gone && !p.inFlight",
		by:  "./workers/internal/core TestAStrangeLeaseIsLeftAlone",
	},
	{
		name: "damaged-checkpoint-dated", file: "workers/internal/core/takeover.go",
		old: "record.Checkpoint{V: record.Version}, time.Time{}",
		new: "record.Checkpoint{V: record.Version}, found.Noted",
		by:  "./workers/internal/core TestADamagedCheckpointHasAnUnknownAge",
	},
	{
		name: "tombstones-stay", file: "workers/internal/core/lease.go",
		old: "c.out.deletes = append(c.out.deletes",
		new: "_ = append(c.out.deletes",
		by:  "./workers/internal/core TestPeersAreForgotten",
	},
	{
		name: "tombstones-removed-though-named", file: "workers/internal/core/lease.go",
		old: "case !c.named(id):",
		new: "default:",
		by:  "./workers/internal/core TestATombstoneStaysWhileARecordNamesIt",
	},
	{
		name: "gone-holder-not-crashed", file: "workers/internal/core/takeover.go",
		old: "in.Gone[r.Holder] = true",
		new: "_ = r",
		by:  "./workers/internal/core TestRunsOfAGoneHolderCountAsCrashed",
	},

	// The last check before a start.

	{
		name: "fence-unchecked", file: "workers/internal/valve/ticket.go",
		old: "case now >= fence || now",
		new: "case now >= max(fence, pace.Never) || now",
		by:  "./workers/internal/valve TestJobsBehindAReturnedOneReturnToo",
	},
	{
		name: "slots-untaken-at-the-start", file: "workers/internal/valve/ticket.go",
		old: "case !t.takeSlots(now):",
		new: "case false && !t.takeSlots(now):",
		by:  "./workers/internal/valve TestAStartTakesItsSlotWhenItBegins",
	},
	{
		name: "total-slots-untaken-at-the-start", file: "workers/internal/valve/ticket.go",
		old: "(t.total == nil || t.total.Start(now, t.cost))",
		new: "true",
		by:  "./workers/internal/valve TestAStartTakesItsSlotWhenItBegins",
	},
	{
		name: "late-for-another-lease", file: "workers/internal/valve/ticket.go",
		old: "latest: fence - 1",
		new: "latest: pace.Never",
		by:  "./workers/internal/core TestAWorkerThatIsLateStartsNothingForItsFormerSelf",
	},
	{
		name: "file-says-defaults", file: "internal/policyfile/policyfile.go",
		old: "full := p.WithDefaults()",
		new: "full := p.WithDefaults()\n\t\t\t*p = full",
		by:  "./config TestPoliciesAreAsTheFileHasThem",
	},
	{
		name: "slots-as-of-the-plan", file: "workers/internal/pace/clock.go",
		old: "max(Instant(tat), now).Add(Times(cost, p.short)); c.started",
		new: "max(Instant(tat), 0).Add(Times(cost, p.short)); c.started",
		by:  "./workers/internal/pace TestStartsTakeTheirSlotsWhenTheyBegin",
	},
	{
		name: "starts-cost-nothing", file: "workers/internal/pace/clock.go",
		old: "now).Add(Times(cost, p.short)); c.started",
		new: "now).Add(0 * Times(cost, p.short)); c.started",
		by:  "./workers/internal/pace TestClockKeepsLaw2",
	},
	{
		name: "plan-deaf-to-starts", file: "workers/internal/pace/clock.go",
		old: "return max(c.Tat, Instant(c.started.Load()))",
		new: "return c.Tat",
		by:  "./workers/internal/pace TestStartsTakeTheirSlotsWhenTheyBegin",
	},
	{
		name: "change-of-pace-unheard-by-starts", file: "workers/internal/pace/clock.go",
		old: "c.move(stretched)",
		new: "",
		by:  "./workers/internal/valve TestAFasterRateEndsASlowWait",
	},
	{
		name: "overtaking-allowed", file: "workers/internal/valve/ticket.go",
		old: "	case overtakes:\n",
		new: "	case false && overtakes:\n",
		by:  "./workers/internal/valve TestJobsBehindAReturnedOneReturnToo",
	},
	{
		name: "who-may-overtake-comes-back", file: "workers/internal/valve/ticket.go",
		old: "t.back.rank.before(t.rank)",
		new: "t.rank.before(t.back.rank)",
		by:  "./workers/internal/valve TestJobsBehindAReturnedOneReturnToo",
	},
	{
		name: "stalled-ignored", file: "workers/internal/valve/settle.go",
		old: `b.own().stalled = true
			b.pace`,
		new: "b.pace",
		by:  "./workers/internal/valve TestJobsBehindAReturnedOneReturnToo",
	},
	{
		name: "returned-keeps-its-place-in-the-plan", file: "workers/internal/pace/clock.go",
		old: "c.Tat = c.Tat.Add(-Times(cost, p.short))",
		new: "",
		by:  "./workers/internal/pace TestASlotThatIsGivenBackIsFree",
	},
	{
		name: "spare-doubled", file: "workers/internal/pace/clock.go",
		old: "c.Due = c.Due.Add(-Times(cost, p.Interval))",
		new: "c.Due = c.Due.Add(-Times(2*cost, p.Interval))",
		by:  "./workers/internal/valve TestAReturnedJobFreesItsSlots",
	},
	{
		name: "spare-never", file: "workers/internal/pace/clock.go",
		old: "c.Due = c.Due.Add(-Times(cost, p.Interval))",
		new: "",
		by:  "./workers/internal/valve TestAReturnedJobFreesItsSlots",
	},
	{
		name: "returned-keeps-its-slot", file: "workers/internal/valve/settle.go",
		old: "b.pace.Spare(&b.clock, j.Cost)",
		new: "_ = j.Cost",
		by:  "./workers/internal/valve TestAReturnedJobFreesItsSlots",
	},
	{
		name: "returned-keeps-its-total-slot", file: "workers/internal/valve/settle.go",
		old: "v.total.Spare(&v.total.clock, j.Cost)",
		new: "_ = j.Cost",
		by:  "./workers/internal/valve TestAReturnedJobFreesItsSlots",
	},

	// Ownership and epochs of partitions.

	{
		name: "outcome-heard-by-a-thawed-process", file: "workers/internal/core/jobs.go",
		old: "!c.Open(now) || s == nil",
		new: "s == nil",
		by:  "./workers/internal/core TestAThawedProcessHearsNoOutcomes",
	},
	{
		name: "late-outcome-not-heard", file: "workers/internal/valve/inherit.go",
		old: "case stageWaiting:",
		new: "case stageGone:",
		by:  "./workers/internal/valve TestAnOutcomeThatComesAfterTheTimeoutIsHeard",
	},
	{
		name: "tenure-unchecked", file: "workers/internal/core/core.go",
		old: "|| s.part.Partition != name {",
		new: "{",
		by:  "./workers/internal/core TestAFormerTenureIsNotHeard",
	},
	{
		name: "stored-unchecked", file: "workers/internal/valve/part.go",
		old: "j != nil && j.Stored.UnixNano() == name.Stamp {",
		new: "j != nil {",
		by:  "./workers/internal/core TestAnAnswerAboutAnotherJobOfItsSequenceIsNotHeard",
	},
	{
		name: "run-kept", file: "workers/internal/valve/settle.go",
		old: "	delete(v.runs, number)\n",
		new: "",
		by:  "./workers/internal/valve TestAnOutcomeIsHeardOnce",
	},
	{
		name: "epoch-unchecked-arrived", file: "workers/internal/core/jobs.go",
		old: "if p == nil || p.Epoch != e.Epoch {",
		new: "if p == nil {",
		by:  "./workers/internal/core TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "epoch-unchecked-opened", file: "workers/internal/core/takeover.go",
		old: "s == nil || s.part.Epoch != found.Epoch ||",
		new: "s == nil ||",
		by:  "./workers/internal/core TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "epoch-unchecked-broke", file: "workers/internal/core/core.go",
		old: `if p := c.part(e.Part); p != nil && p.Epoch == e.Epoch {
		p.broken`,
		new: `if p := c.part(e.Part); p != nil {
		p.broken`,
		by: "./workers/internal/core TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "epoch-unchecked-unopened", file: "workers/internal/core/takeover.go",
		old: "&& s.part.Epoch == e.Epoch {",
		new: "{",
		by:  "./workers/internal/core TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "strange-record-taken", file: "workers/internal/core/ownership.go",
		old: `if s.strange {
		return false
	}`,
		new: "",
		by:  "./workers/internal/core TestRecordsOfAnotherVersionAreLeftAlone",
	},
	{
		name: "after-chain-dropped", file: "workers/internal/core/ownership.go",
		old: "r.After = cmp.Or(s.before.record.After, s.before.revision)",
		new: "_ = cmp.Or(1)",
		by:  "./workers/internal/core TestTwoCrashesInARowForgetNoRuns",
	},
	{
		name: "claim-forgets-running", file: "workers/internal/core/ownership.go",
		old: "= b.Running, b.Done, b.Stream, b.Last",
		new: "= nil, b.Done, b.Stream, b.Last",
		by:  "./workers/internal/core TestAClaimPassesRunningJobsOn",
	},
	{
		name: "late-claim-not-acted-on", file: "workers/internal/core/ownership.go",
		old: `if c.Lease.Held {
			c.takeUp(s, now)
		}`,
		new: "",
		by:  "./workers/internal/core TestAReleaseWhoseAnswerIsLostIsOver",
	},
	{
		name: "answers-of-a-former-tenure-count", file: "workers/internal/core/checkpoint.go",
		old: " || s.part.Part != p.gathering.Of {",
		new: " {",
		by:  "./workers/internal/core TestAnswersToEarlierCheckpointsAreIgnored",
	},
	{
		name: "older-checkpoint-believed", file: "workers/internal/core/takeover.go",
		old: "newer := found.Checkpoint.Epoch == b.revision ||",
		new: "newer := true || found.Checkpoint.Epoch == b.revision ||",
		by:  "./workers/internal/core TestACheckpointOfAFormerOwnerListsNoCurrentRuns",
	},
	{
		name: "record-age-unread", file: "workers/internal/core/ownership.go",
		old: "if s.part == nil && s.exists && s.stored.IsZero() && s.vanished == 0 {",
		new: "if false {",
		by:  "./workers/internal/core TestARecordOfUnknownAgeIsReadBeforeItIsClaimed",
	},
	{
		name: "connection-does-not-rebuild", file: "workers/internal/core/core.go",
		old: `s.part.broken = true
		}
	}
	c.TickAt = now
}

func (Synced)`,
		new: `_ = s
		}
	}
	c.TickAt = now
}

func (Synced)`,
		by: "./workers/internal/core TestBacklogsAreReopenedAfterAReconnect",
	},
	{
		name: "release-not-repeated", file: "workers/internal/core/distribute.go",
		old: "if s.unwritten != nil && now >= s.actAt {",
		new: "if false {",
		by:  "./workers/internal/core TestAReleaseThatWasNotAppliedIsRepeated",
	},
	{
		name: "release-ignores-undecided", file: "workers/internal/valve/surrender.go",
		old: "p.undecided.any() || p.noting > 0",
		new: "p.noting > 0",
		by:  "./workers/internal/core TestAHandoverWaitsForJobsOnTheirWayToAWorker",
	},
	{
		name: "release-ignores-noting", file: "workers/internal/valve/surrender.go",
		old: "p.undecided.any() || p.noting > 0",
		new: "p.undecided.any()",
		by:  "./workers/internal/core TestHandoverWaitsForCrashesToBeRecorded",
	},
	{
		name: "release-to-dead-favourite", file: "workers/internal/core/distribute.go",
		old: `return to != "" && c.peers[to].alive(now, c.options.Lease) || c.quiet(s)`,
		new: `return to != "" || c.quiet(s)`,
		by:  "./workers/internal/core TestADrainerThatLeavesWithoutAnHeirWaitsForItsJobs",
	},
	{
		name: "release-before-quiet", file: "workers/internal/core/distribute.go",
		old: `return to != "" && c.peers[to].alive(now, c.options.Lease) || c.quiet(s)`,
		new: `return to != "" || true`,
		by:  "./workers/internal/core TestADrainerThatLeavesWithoutAnHeirWaitsForItsJobs",
	},
	{
		name: "leaves-before-outcomes-told", file: "workers/internal/core/core.go",
		old: "return c.Running() == 0 && len(c.unsettled) == 0",
		new: "return c.Running() == 0",
		by:  "./workers/internal/core TestADrainerEndsWhenItsOutcomesAreDelivered",
	},
	{
		name: "reported-accepted-when-fresh", file: "workers/internal/core/jobs.go",
		old: "|| !s.part.Owned() || s.part.fresh {",
		new: "|| !s.part.Owned() {",
		by:  "./workers/internal/core TestAnOutcomeIsNotTakenBeforeTheInheritanceIsKnown",
	},
	{
		name: "partitions-move-at-once", file: "workers/internal/core/distribute.go",
		old: "now < c.steadyAt ||",
		new: "",
		by:  "./workers/internal/core TestPartitionsMoveWhenTheDrainersHaveBeenTheSameForAWhile",
	},
	{
		name: "more-than-its-share", file: "workers/internal/core/distribute.go",
		old: "cmp.Compare(max(load[best]+1, quota), max(load[id]+1, quota)),",
		new: "0*cmp.Compare(max(load[best]+1, quota), max(load[id]+1, quota)),",
		by:  "./workers/internal/core TestFavouritesAreBalancedAndFewMove",
	},

	{
		name: "deleted-lease-of-a-leaver-is-kept", file: "workers/internal/core/lease.go",
		old: "!c.Open(now) || c.Leaving && !found.vanished()",
		new: "!c.Open(now)",
		by:  "./workers/internal/core TestADeletedLeaseIsRewrittenUnlessItsDrainerLeaves",
	},
	{
		name: "handed-to-whose-lease-is-gone", file: "workers/internal/core/lease.go",
		old: "!p.gone && !p.vanished && now",
		new: "!p.gone && now",
		by:  "./workers/internal/core TestNothingIsHandedToADrainerWithoutALease",
	},
	{
		name: "deleted-lease-is-a-death", file: "workers/internal/core/lease.go",
		old: "found.vanished() || p.deleted(found)",
		new: "found.vanished()",
		by:  "./workers/internal/core TestStories",
	},
	{
		name: "dead-after-three-leases", file: "workers/internal/core/lease.go",
		old: "now.Since(p.seen) >= expires {",
		new: "now.Since(p.seen) >= 3*expires {",
		by:  "./workers/internal/core TestStories",
	},

	// Inheritance by a successor.

	{
		name: "takeover-burst-credit", file: "workers/internal/pace/clock.go",
		old: `c.Tat = max(c.Tat, t.Add(p.envelope))
	c.move(func(tat Instant) Instant { return max(tat, t.Add(p.envelope)) })`,
		new: "",
		equivalent: "due is moved on as well, and by it starts come no sooner than by an " +
			"envelope that is empty then",
	},
	{
		name: "inherited-run-not-counted", file: "workers/internal/valve/valve.go",
		old: `j.holder = in.holder
		b.own().running++`,
		new: "j.holder = in.holder",
		by:  "./workers/internal/valve TestInheritedRunsHoldConcurrency",
	},
	{
		name: "unseen-does-not-gate", file: "workers/internal/valve/gates.go",
		old: "case b.blocked(), b.concurrency > 0 && b.Part.unseen > 0:",
		new: "case b.blocked():",
		by:  "./workers/internal/valve TestInheritedRunsHoldConcurrency",
	},
	{
		name: "no-checkpoints", file: "workers/internal/core/checkpoint.go",
		old: "case !p.Changed || s.pending:",
		new: "case true:",
		by:  "./workers/internal/core TestCheckpointListsClocksDueAfterTheLease",
	},
	{
		name: "checkpoint-lists-what-is-due-after-a-whole-lease",
		file: "workers/internal/core/checkpoint.go",
		old:  "g.Some(n, now, c.Lease.Fence)",
		new:  "g.Some(n, now, now.Add(c.options.Lease))",
		by:   "./workers/internal/core TestCheckpointListsClocksDueAfterTheLease",
	},
	{
		name: "cooldown-not-handed-over", file: "workers/internal/valve/handover.go",
		old: "if b.cool > after {",
		new: "if false {",
		by:  "./workers/internal/valve TestACoolDownIsHandedOver",
	},
	{
		name: "done-not-handed-over", file: "workers/internal/valve/handover.go",
		old: "h.Done = p.doneJobs(now)",
		new: "_ = p.doneJobs",
		by:  "./workers/internal/valve TestFinishedJobsAreKnownToTheOwnerAfterTheNext",
	},
	{
		name: "told-outcomes-not-passed-on", file: "workers/internal/valve/surrender.go",
		old: "if in := p.inherited[seq]; in.outcome != nil {",
		new: "if in := p.inherited[seq]; false {",
		by:  "./workers/internal/valve TestADeliveredOutcomeIsForgotten",
	},
	{
		name: "inherited-outcomes-not-listed", file: "workers/internal/valve/handover.go",
		old: "running = append(running, record.Run{Seq: seq, Holder: p.v.Self})",
		new: "",
		by:  "./workers/internal/valve TestADeliveredOutcomeIsForgotten",
	},
	{
		name: "crash-clock-always-believed", file: "workers/internal/valve/inherit.go",
		old: "if notBefore <= now.Add(in.Fence) {",
		new: "if notBefore <= 0 {",
		by:  "./workers/internal/valve TestAPossiblyOutdatedClockIsNotBelieved",
	},
	{
		name: "crash-clock-believed-before-the-fence", file: "workers/internal/valve/inherit.go",
		old: "if notBefore <= now.Add(in.Fence) {",
		new: "if notBefore <= now {",
		by:  "./workers/internal/valve TestAClockDueBeforeTheFenceWaitsAnInterval",
	},
	{
		name: "elapsed-doubled", file: "workers/internal/core/takeover.go",
		old: "return max(0, least),",
		new: "return 2 * max(0, least),",
		by:  "./workers/internal/core TestASlowRateGoesOnOverARestart",
	},
	{
		name: "elapsed-200-ms-too-much", file: "workers/internal/core/takeover.go",
		old: "return max(0, least),",
		new: "return 200*time.Millisecond + max(0, least),",
		by:  "./workers/internal/core TestASlowRateGoesOnOverARestart",
	},
	{
		name: "elapsed-by-the-stamps-alone", file: "workers/internal/core/takeover.go",
		old: "least = min(least, now.Since(seen))",
		new: "_ = seen",
		by:  "./workers/internal/core TestNoLeadersClockShortensAWait",
	},
	{
		name: "elapsed-of-the-server-ignored", file: "workers/internal/core/takeover.go",
		old: "least = min(least, c.Wall(now).Sub(told))",
		new: "_ = told",
		by:  "./workers/internal/core TestNoLeadersClockShortensAWait",
	},
	{
		name: "elapsed-of-the-machine-ignored", file: "workers/internal/core/takeover.go",
		old: "least = min(least, found.Read.Sub(stored))",
		new: "_ = stored",
		by:  "./workers/internal/core TestNoLeadersClockShortensAWait",
	},
	{
		name: "attempts-of-another-stream-taken", file: "workers/internal/core/takeover.go",
		old: "return stream != found.Created.UnixNano()",
		new: "return false",
		by:  "./workers/internal/core TestAttemptsOfAnotherStreamAreToldApartByItsId",
	},
	{
		name: "total-no-hold-after-crash", file: "workers/internal/valve/inherit.go",
		old: "t.Hold(&t.clock, max(now.Add(in.Fence+t.Interval), p.restsUntil))",
		new: "_ = in.Fence",
		by:  "./workers/internal/valve TestAPossiblyOutdatedClockIsNotBelieved",
	},
	{
		name: "total-clock-not-inherited", file: "workers/internal/valve/inherit.go",
		old: "in.wind(&t.clock, c, t.Pace, t.Before(in.Handover.Total, 1), now)",
		new: "_ = t",
		by:  "./workers/internal/valve TestAPossiblyOutdatedClockIsNotBelieved",
	},
	{
		name: "attempts-not-inherited", file: "workers/internal/valve/valve.go",
		old: "j.Attempts, j.crashes, j.LastError, j.recorded = in.record.Attempts,",
		new: "j.Attempts, j.crashes, j.LastError, j.recorded = 0*in.record.Attempts,",
		by:  "./workers/internal/valve TestAttemptsAndTheirBackoffAreInherited",
	},
	{
		name: "backoff-not-inherited", file: "workers/internal/valve/valve.go",
		old: "case in.record.DueIn > 0 && edit.Run != j.ordinal():",
		new: "case in.record.DueIn > 0 && false:",
		by:  "./workers/internal/valve TestAttemptsAndTheirBackoffAreInherited",
	},
	{
		name: "inherited-run-never-times-out", file: "workers/internal/valve/valve.go",
		old: `	p.v.lookAt(j, now.Add(time.Duration(p.v.Policy.Timeout)))
	case p.repeats(j, now):`,
		new: "case p.repeats(j, now):",
		by:  "./workers/internal/valve TestAnInheritedRunTimesOut",
	},
	{
		name: "progress-not-heard", file: "workers/internal/valve/inherit.go",
		old: "p.v.lookAt(j, now.Add(time.Duration(p.v.Policy.Timeout)))\n",
		new: "",
		by:  "./workers/internal/valve TestAnInheritedRunTimesOut",
	},
	{
		name: "outcome-of-another-run-taken", file: "workers/internal/valve/inherit.go",
		old: `|| o.Holder != "" && o.Holder != j.holder {`,
		new: "{",
		by:  "./workers/internal/valve TestAnOutcomeOfAnEarlierRunIsIgnored",
	},
	{
		name: "reopen-forgets-recent", file: "workers/internal/valve/inherit.go",
		old: `for _, f := range p.recent {
		p.finished[f.seq] = f.stored
	}`,
		new: "",
		by:  "./workers/internal/valve TestAFinishedJobThatComesAgainIsOnlyAcknowledged",
	},
	{
		name: "confirmed-not-remembered-while-sweeping", file: "workers/internal/valve/settle.go",
		old: `p.finished[seq] = stored`,
		new: "",
		by:  "./workers/internal/valve TestAFinishedJobThatComesAgainIsOnlyAcknowledged",
	},
	{
		name: "acks-of-redelivered-not-repeated", file: "workers/internal/valve/valve.go",
		old: "if j.stage == stageAcking {",
		new: "if false {",
		by:  "./workers/internal/valve TestAFinishedJobThatComesAgainIsOnlyAcknowledged",
	},
	{
		name: "resume-without-hold", file: "workers/internal/valve/inherit.go",
		old: `b.pace.Hold(&b.clock, now)
			v.place(b, now)`,
		new: "v.place(b, now)",
		by:  "./workers/internal/valve TestStartsThatAreAllowedAgainAreNoBurst",
	},
	{
		name: "holder-gone-keeps-unseen", file: "workers/internal/valve/inherit.go",
		old: `in.holder, in.crashed = "", holder
				p.saw(now)`,
		new: `in.holder, in.crashed = "", holder`,
		by:  "./workers/internal/valve TestRunsOfAHolderThatDiesBeforeTheyComeHoldNothing",
	},
	{
		name: "sweep-keeps-unseen", file: "workers/internal/valve/inherit.go",
		old: `if in.runs() {
			p.saw(now)
		}
	}
	maps.`,
		new: `if false {
			p.saw(now)
		}
	}
	maps.`,
		by: "./workers/internal/core TestASweepEndsTheWaitForRunsThatAreGone",
	},
	{
		name: "sweep-keeps-inherited", file: "workers/internal/valve/inherit.go",
		old: `delete(p.inherited, seq)
		if in.saved`,
		new: "if in.saved",
		by:  "./workers/internal/core TestASweepEndsTheWaitForRunsThatAreGone",
	},
	{
		name: "sweep-forgets-what-lies-beyond", file: "workers/internal/valve/inherit.go",
		old: `if seq > p.last {
			continue`,
		new: `if false {
			continue`,
		by: "./workers/internal/core TestASweepIgnoresLaterJobs",
	},
	{
		name: "sweep-removes-what-lies-beyond", file: "workers/internal/valve/inherit.go",
		old: "j.generation != p.generation && j.Seq <= p.last",
		new: "j.generation != p.generation",
		by:  "./workers/internal/valve TestASweepRemovesOnlyMissingJobs",
	},
	{
		name: "sweep-removes-what-has-come", file: "workers/internal/valve/inherit.go",
		old: "j.generation != p.generation && j.Seq <= p.last",
		new: "j.Seq <= p.last",
		by:  "./workers/internal/valve TestASweepRemovesOnlyMissingJobs",
	},
	{
		name: "vanished-not-removed", file: "workers/internal/valve/inherit.go",
		old: `case stageWaiting, stageDelayed:
			p.v.vanish(j, now)`,
		new: `case stageGone:
			p.v.vanish(j, now)`,
		by: "./workers/internal/valve TestASweepRemovesOnlyMissingJobs",
	},
	{
		name: "sweep-keeps-acknowledged", file: "workers/internal/valve/inherit.go",
		old: `case stageAcking:
			p.Confirmed(j.Seq, now)`,
		new: "case stageAcking:",
		by:  "./workers/internal/valve TestASweepRemovesOnlyMissingJobs",
	},
	{
		name: "finished-forgotten-by-a-sweep", file: "workers/internal/valve/inherit.go",
		old: "return seq <= p.last })",
		new: "return true })",
		by:  "./workers/internal/valve TestASweepRemovesOnlyMissingJobs",
	},
	{
		name: "unseen-waited-for-without-end", file: "workers/internal/valve/inherit.go",
		old: "p.unseen > 0 && now >= p.unseenUntil",
		new: "false",
		by:  "./workers/internal/core TestRunsThatDoNotArriveAreGivenUp",
	},
	{
		name: "records-of-any-size", file: "workers/internal/record/fit.go",
		old: "int(min(MostBytes, payload/8*7))",
		new: "int(MostBytes+0*payload)",
		by:  "./workers/internal/valve TestRecordsFitTheServersMessages",
	},
	{
		name: "more-than-the-list-holds-left-out", file: "workers/internal/record/fit.go",
		old: "running[holder].within(most - size)",
		new: "running[holder].within(100)",
		by:  "./workers/internal/valve TestAHandoverListsAllThatRunsAndHasFinished",
	},
	{
		name: "confirmed-crowd-out-unconfirmed", file: "workers/internal/valve/handover.go",
		old: "return append(done, slices.Compact(confirmed)...)",
		new: "return append(slices.Compact(confirmed), done...)",
		by:  "./workers/internal/valve TestConfirmedJobsDoNotCrowdOutUnconfirmedOnes",
	},
	{
		name: "retired-policy-opened-for-ever", file: "workers/internal/core/takeover.go",
		old: "s.over = e.Streamless &&",
		new: "s.over = false && e.Streamless &&",
		by:  "./workers/internal/core TestOpeningAPartitionOfARetiredPolicyIsGivenUp",
	},
	{
		name: "what-cannot-be-opened-given-up-in-vain", file: "workers/internal/core/distribute.go",
		old: "case s.state != shareReleasing:\n\t\treturn false",
		new: "case s.state != shareReleasing:\n\t\treturn true",
		by: "./workers/internal/core " +
			"TestAReleasedPartitionIsReopenedForPendingAcknowledgements",
	},
	{
		name: "release-repeated-without-a-pause", file: "workers/internal/core/ownership.go",
		old: "s.actAt = now.Add(pace.Doubled(releaseAgain, s.rewrites, reopenMost))",
		new: "s.actAt = now",
		by:  "./workers/internal/core TestAReleaseThatCannotBeWrittenIsTriedLessAndLessOften",
	},
	{
		name: "beginner-takes-what-is-lost", file: "workers/internal/core/policies.go",
		old: "if p.Stored.Before(c.options.OwnersMade) {",
		new: "if false {",
		by:  "./workers/internal/core TestANewDrainerLetsOwnersRewriteLostRecords",
	},
	{
		name: "beginner-waits-in-a-new-installation", file: "workers/internal/core/policies.go",
		old: "if p.Stored.Before(c.options.OwnersMade) {",
		new: "if true {",
		by:  "./workers/internal/core TestANewDrainerLetsOwnersRewriteLostRecords",
	},
	{
		name: "leaves-with-what-it-could-not-open", file: "workers/internal/core/core.go",
		old: "if s.state != shareIdle {",
		new: "if s.state != shareIdle && s.failures == 0 {",
		by:  "./workers/internal/core TestALeaverReleasesUnopenedPartitions",
	},
	{
		name: "claim-forgets-what-was-done", file: "workers/internal/core/ownership.go",
		old: "= b.Running, b.Done, b.Stream, b.Last",
		new: "= b.Running, nil, b.Stream, b.Last",
		by:  "./workers/internal/core TestACrashBeforeTheOpeningKeepsTheHandover",
	},
	{
		name: "crash-forgets-what-was-done-before", file: "workers/internal/core/takeover.go",
		old: "= b.record.Running, b.record.Done",
		new: "= b.record.Running, nil",
		by:  "./workers/internal/core TestACrashBeforeTheOpeningKeepsTheHandover",
	},
	{
		name: "unopened-partition-kept", file: "workers/internal/core/distribute.go",
		old: "(c.givesUp(s) || s.over || c.othersMay(s, now)) && c.letGo(s, now):",
		new: "(c.givesUp(s) || s.over) && c.letGo(s, now):",
		by:  "./workers/internal/core TestAnUnopenablePartitionIsLeftToOthers",
	},
	{
		name: "partial-not-said", file: "workers/internal/record/fit.go",
		old: "h.Clocks, h.Partial = h.Clocks[:i], true",
		new: "h.Clocks = h.Clocks[:i]",
		by:  "./workers/internal/valve TestHandoverFitsAMessage",
	},
	{
		name: "left-out-clocks-wait-one-interval", file: "workers/internal/record/fit.go",
		old: "h.Rest = max(h.Rest, c.Wait)",
		new: "h.Rest = max(h.Rest, 0*c.Wait)",
		by:  "./workers/internal/valve TestBucketsOmittedFromAHandoverWait",
	},
	{
		name: "left-out-clocks-forgotten-by-the-next", file: "workers/internal/valve/handover.go",
		old: "h.Rest = max(0, record.Micros(p.restsUntil.Since(now)))",
		new: "h.Rest = 0",
		by:  "./workers/internal/valve TestBucketsOmittedFromAHandoverWait",
	},
	{
		name: "restored-job-taken-for-held", file: "workers/internal/valve/valve.go",
		old: "if j.Stored.Equal(a.Stored) {",
		new: "if j.Seq == a.Seq {",
		by:  "./workers/internal/valve TestJobsOfARestoredStreamDifferFromHeldJobs",
	},
	{
		name: "restored-job-taken-for-finished", file: "workers/internal/valve/part.go",
		old: "return known && (at == stored ||",
		new: "return known && (at != 0 ||",
		by:  "./workers/internal/valve TestJobsOfARestoredStreamDifferFromHeldJobs",
	},
	{
		name: "restored-job-taken-for-the-last-finished", file: "workers/internal/valve/part.go",
		old: "return f.seq == seq && f.stored == stored",
		new: "return f.seq == seq",
		by:  "./workers/internal/valve TestJobsOfARestoredStreamDifferFromHeldJobs",
	},
	{
		name: "restored-job-taken-for-told-done", file: "workers/internal/valve/part.go",
		old: "at == 0 && !p.newer(stored))",
		new: "at == 0)",
		by:  "./workers/internal/valve TestJobsOfARestoredStreamDifferFromInheritedJobs",
	},
	{
		name: "restored-job-taken-for-running", file: "workers/internal/valve/inherit.go",
		old: "if p.newer(stored) {",
		new: "if p.newer(stored) && in.runs() && in.outcome != nil {",
		by:  "./workers/internal/valve TestJobsOfARestoredStreamDifferFromInheritedJobs",
	},
	{
		name: "restored-job-has-others-attempts", file: "workers/internal/valve/inherit.go",
		old: "if in.record.Job != 0 && in.record.Job != stored {",
		new: "if in.record.Job != 0 && in.record.Job > stored {",
		by:  "./workers/internal/valve TestJobsOfARestoredStreamDifferFromInheritedJobs",
	},
	{
		name: "told-on-as-of-those-that-came", file: "workers/internal/valve/inherit.go",
		old: "p.through, p.newest = in.Handover.Through, max(p.newest, in.Handover.Through)",
		new: "p.through = in.Handover.Through",
		by:  "./workers/internal/valve TestForwardedStateIsOfJobsThatTheFirstOwnerSaw",
	},
	{
		name: "short-clocks-first", file: "workers/internal/valve/handover.go",
		old: "cmp.Compare(waitB, waitA)",
		new: "cmp.Compare(waitA, waitB)",
		by:  "./workers/internal/valve TestClocksThatLoseMostAreListedFirst",
	},
	{
		name: "crashed-not-handed-on", file: "workers/internal/valve/handover.go",
		old: "h.Crashed = max(1, record.Micros(now.Since(p.crashedAt)))",
		new: "",
		by:  "./workers/internal/valve TestCrashIsRememberedOverAPlannedHandover",
	},
	{
		name: "other-streams-sequences", file: "workers/internal/core/takeover.go",
		old: "in.Handover.Running, in.Handover.Done = nil, nil",
		new: "",
		by:  "./workers/internal/core TestRecordsOfAFormerStreamAreNotApplied",
	},
	{
		name: "stream-made-anew-unnoticed", file: "workers/internal/valve/inherit.go",
		old: "case !created.Equal(p.created):",
		new: "case false:",
		by:  "./workers/internal/core TestAStreamRecreatedUnderItsOwner",
	},

	// What becomes of a job.

	{
		name: "ack-before-dead-letter", file: "workers/internal/valve/settle.go",
		old: "j.LastError, j.reason = detail, reason",
		new: `j.LastError, j.reason = detail, reason
	v.out.Acks = append(v.out.Acks, j.ref())`,
		by: "./workers/internal/valve TestMalformedJobsTakeNoSlot",
	},
	{
		name: "malformed-starts", file: "workers/internal/valve/valve.go",
		old: "case a.Malformed != nil:",
		new: "case false:",
		by:  "./workers/internal/valve TestMalformedJobsTakeNoSlot",
	},
	{
		name: "cooldown-ignored", file: "workers/internal/valve/settle.go",
		old: "b.cool = max(b.cool, now.Add(min(wait, time.Duration(v.Policy.Retry.MaxCooldown))))",
		new: "",
		by:  "./workers/internal/valve TestCooldowns",
	},
	{
		name: "throttle-without-limit", file: "workers/internal/valve/settle.go",
		old: "now.Add(min(wait, time.Duration(v.Policy.Retry.MaxCooldown)))",
		new: "now.Add(wait)",
		by:  "./workers/internal/valve TestCooldowns",
	},
	{
		name: "throttle-counts-an-attempt", file: "workers/internal/valve/settle.go",
		old: `v.throttle(j, o.RetryAfter, local, now)
		v.makeReady(j, now)`,
		new: `v.throttle(j, o.RetryAfter, local, now)
		j.Attempts++
		v.makeReady(j, now)`,
		by: "./workers/internal/valve TestCooldowns",
	},
	{
		name: "every-throttle-of-a-row-doubles", file: "workers/internal/valve/settle.go",
		old: "if now >= b.cool { // answers",
		new: "if true { // answers",
		by:  "./workers/internal/valve TestAnswersToJobsUnderWayTogetherMakeOneCooldown",
	},
	{
		name: "retry-goes-last", file: "workers/internal/valve/bucket.go",
		old: "{ return j.rank().before(k.rank()) }",
		new: `{
	if j.tried == k.tried && j.Priority == k.Priority && (j.Attempts > 0) != (k.Attempts > 0) {
		return k.Attempts > 0
	}
	return j.rank().before(k.rank())
}`,
		by: "./workers/internal/valve TestPoisonJobsAtTheHeadDelayTheirBucketByOneProbe",
	},
	{
		name: "priority-reversed", file: "workers/internal/valve/bucket.go",
		old: "return -int64(priority)",
		new: "return int64(priority)",
		by:  "./workers/internal/valve TestPriorityGoesFirst",
	},
	{
		name: "step-of-priority-worth-nothing", file: "workers/internal/valve/bucket.go",
		old: "return came - int64(priority)*b.step",
		new: "return came",
		by:  "./workers/internal/valve TestAPriorityStepIsWorthWaiting",
	},
	{
		name: "high-priorities-starve-low-ones", file: "workers/internal/valve/bucket.go",
		old: "if b.step == 0 {",
		new: "if true {",
		by:  "./workers/internal/valve TestPrioritiesStarveNobody",
	},
	{
		name: "order-by-stamps-that-step-back", file: "workers/internal/valve/part.go",
		old: "	if stored >= a.last {",
		new: "	if true {",
		by:  "./workers/internal/valve TestJobsStartInTheOrderOfTheirRanks",
	},
	{
		name: "stamps-behind-forgotten-where-deep", file: "workers/internal/valve/part.go",
		old: "return max(stored, a.flats[i].at)",
		new: "return stored",
		by:  "./workers/internal/valve TestJobsStartInTheOrderOfTheirRanks",
	},
	{
		name: "what-came-in-between-forgotten", file: "workers/internal/valve/part.go",
		old: "a.flats[1].from = a.flats[0].from",
		new: "",
		by:  "./workers/internal/valve TestArrivalsNeverStepBack",
	},
	{
		name: "places-of-all-who-came-later-told", file: "workers/internal/valve/bucket.go",
		old: "case b.step > 0 && latest < b.Part.arrivals.last:",
		new: "case false:",
		by:  "./workers/internal/valve TestPositionsByRankAreEstimates",
	},
	{
		name: "front-behind-ranks", file: "workers/internal/valve/bucket.go",
		old: `	if r.front != other.front {
		return r.front > other.front
	}
	if r.place != other.place {
		return r.place < other.place
	}`,
		new: `	if r.place != other.place {
		return r.place < other.place
	}
	if r.front != other.front {
		return r.front > other.front
	}`,
		by: "./workers/internal/valve TestAnEditedJobKeepsItsArrival",
	},
	{
		name: "another-step-leaves-the-order", file: "workers/internal/valve/bucket.go",
		old: "b.ready.Retain(func(orderedJob) bool { return true })",
		new: "",
		by:  "./workers/internal/valve TestAnotherPriorityStepReordersWaitingJobs",
	},
	{
		name: "checks-of-two-steps-mixed", file: "workers/internal/valve/bucket.go",
		old: "	b.stalled = true\n",
		new: "",
		by:  "./workers/internal/valve TestEarlierFinalChecksGoFirst",
	},
	{
		name: "places-by-rank-too-far-back", file: "workers/internal/valve/bucket.go",
		old: "		if m.at > at {\n			break\n		}\n		arrived = m.arrived",
		new: "		arrived = m.arrived\n		if m.at > at {\n			break\n		}",
		by:  "./workers/internal/valve TestPositionsByRankAreEstimates",
	},
	{
		name: "deadline-ignored", file: "workers/internal/valve/valve.go",
		old: "if !j.Deadline.IsZero() && j.Deadline.Before(at) {",
		new: "if false {",
		by:  "./workers/internal/valve TestDeadlinesPassWhereverAJobWaits",
	},
	{
		name: "deadline-ignored-in-pause", file: "workers/internal/valve/starts.go",
		old: `case j.expires <= now:
		v.detach(j)`,
		new: `case j.expires <= now && j.Bucket.paused && j.stage == stageWaiting:
		v.lookAt(j, pace.Never)
	case j.expires <= now:
		v.detach(j)`,
		by: "./workers/internal/valve TestDeadlinesPassWhereverAJobWaits",
	},
	{
		name: "deadline-a-second-early", file: "workers/internal/valve/valve.go",
		old: "return j.Deadline\n",
		new: "return j.Deadline.Add(-time.Second)\n",
		by:  "./workers/internal/valve TestDeadlinesPassWhereverAJobWaits",
	},
	{
		name: "not-before-ignored", file: "workers/internal/valve/valve.go",
		old: "case !j.NotBefore.IsZero() && j.NotBefore.After(p.v.wall.at(now)):",
		new: "case !j.NotBefore.IsZero() && j.NotBefore.After(p.v.wall.at(now)) && false:",
		by:  "./workers/internal/valve TestAJobStartsAtItsNotBefore",
	},
	{
		name: "backoff-ignored", file: "workers/internal/valve/settle.go",
		old: "v.delay(j, now.Add(j.backoff))",
		new: "v.delay(j, now)",
		by:  "./workers/internal/valve TestFailedAttemptsBackOffWithJitter",
	},
	{
		name: "backoff-not-random", file: "workers/internal/pace/backoff.go",
		old: "time.Duration(draw*float64(d-d/2))",
		new: "d - d/2",
		by:  "./workers/internal/valve TestFailedAttemptsBackOffWithJitter",
	},
	{
		name: "crash-not-counted", file: "workers/internal/valve/settle.go",
		old: "j.crashes++",
		new: "",
		by:  "./workers/internal/valve TestPoisonJobDiesAtItsThirdCrash",
	},
	{
		name: "poison-after-two", file: "workers/internal/valve/valve.go",
		old: "MostCrashes = 3",
		new: "MostCrashes = 2",
		by:  "./workers/internal/valve TestPoisonJobDiesAtItsThirdCrash",
	},
	{
		name: "third-crash-goes-on", file: "workers/internal/valve/settle.go",
		old: `case j.crashes >= MostCrashes:
		v.buryCrashed(j)
		v.place(`,
		new: `case false:
		v.buryCrashed(j)
		v.place(`,
		by: "./workers/internal/valve TestPoisonJobDiesAtItsThirdCrash",
	},
	{
		name: "recorded-third-crash-starts", file: "workers/internal/valve/valve.go",
		old: "case j.crashes >= MostCrashes:",
		new: "case false:",
		by:  "./workers/internal/valve TestAJobThatCrashedThreeOwnersNeverStartsAgain",
	},
	{
		name: "recorded-crash-counts-again", file: "workers/internal/valve/inherit.go",
		old: `||
			r.Holder == j.record.CrashedBy`,
		new: "",
		by:  "./workers/internal/valve TestACrashThatIsRecordedIsNotWaitedForAgain",
	},
	{
		name: "bodies-of-near-jobs-stay", file: "workers/internal/valve/depth.go",
		old: "if !v.memory.tight() {",
		new: "if true {",
		by:  "./workers/internal/valve TestNearJobsLoseTheirBodiesWhereMemoryIsTight",
	},
	{
		name: "bodies-of-jobs-that-start-are-dropped", file: "workers/internal/valve/depth.go",
		old: "b.spot == spotSched && readAt(b.nextAt) > now",
		new: "true",
		by:  "./workers/internal/valve TestNearJobsLoseTheirBodiesWhereMemoryIsTight",
	},
	{
		name: "buckets-write-to-what-they-share", file: "workers/internal/valve/bucket.go",
		old: "b.near = &near{callers: noCallers}",
		new: "",
		by:  "./workers/internal/valve TestMemoryOfAKeyWithDeepJobs",
	},
	{
		name: "deep-buckets-have-all", file: "workers/internal/valve/bucket.go",
		old: "limits: l, near: nothingNear}",
		new: "limits: l, near: &near{}}",
		by:  "./workers/internal/valve TestMemoryOfAKeyWithDeepJobs",
	},
	{
		name: "crash-note-does-not-hold-bucket", file: "workers/internal/valve/settle.go",
		old: "j.Bucket.own().noting++",
		new: "j.Bucket.noting += 0",
		by:  "./workers/internal/valve TestPoisonJobDiesAtItsThirdCrash",
	},
	{
		name: "failed-buried-as-permanent", file: "workers/internal/valve/settle.go",
		old: `if j.Attempts >= job.MaxAttempts(j.Header, retry.MaxAttempts) {
		v.bury(j, job.ReasonAttempts, o.Error)`,
		new: `if j.Attempts >= 1 {
		v.bury(j, job.ReasonPermanent, o.Error)`,
		by: "./workers/internal/valve TestLettersCountEveryAttempt",
	},
	{
		name: "attempts-never-used-up", file: "workers/internal/valve/settle.go",
		old: "if j.Attempts >= job.MaxAttempts(j.Header, retry.MaxAttempts) {",
		new: "if j.Attempts >= 2*retry.MaxAttempts {",
		by:  "./workers/internal/valve TestLettersCountEveryAttempt",
	},
	{
		name: "own-attempts-ignored", file: "workers/internal/valve/settle.go",
		old: "if j.Attempts >= job.MaxAttempts(j.Header, retry.MaxAttempts) {",
		new: "if j.Attempts >= retry.MaxAttempts {",
		by:  "./workers/internal/valve TestAJobsOwnAttempts",
	},
	{
		name: "snooze-counts-an-attempt", file: "workers/internal/valve/settle.go",
		old: "v.recordFailure(j, min(o.Again,",
		new: "j.Attempts++; v.recordFailure(j, min(o.Again,",
		by:  "./workers/internal/valve TestSnoozedJobsStartLater",
	},
	{
		name: "snooze-after-a-run-by-hand-is-cut-short", file: "workers/internal/valve/settle.go",
		old: "j.snoozes++",
		new: "",
		by:  "./workers/internal/valve TestAJobThatWasRunMaySnooze",
	},
	{
		name: "snooze-handed-over-as-a-failure", file: "workers/internal/valve/settle.go",
		old: "j.snoozed = true",
		new: "",
		by:  "./workers/internal/valve TestASnoozeCountsNoAttemptInAHandover",
	},
	{
		name: "slow-look-puts-the-next-off", file: "internal/node/storage.go",
		old: "return min(max(rationAgain, rationShare*took), roundAgain(rationLatest, policies))",
		new: "return max(rationAgain, rationShare*took)",
		by:  "./internal/node TestOneSlowLookDoesNotPutOffTheNextForLong",
	},
	{
		name: "a-pass-forgets-changes-before-the-last", file: "internal/node/known.go",
		old: "append(k.news, changed...)",
		new: "changed",
		by:  "./internal/node TestOneMorePolicyConcernsNoOther",
	},
	{
		name: "each-pass-sees-all-changes-again", file: "internal/node/known.go",
		old: "changed, k.news = k.news, nil",
		new: "changed = k.news",
		by:  "./internal/node TestOneMorePolicyConcernsNoOther",
	},
	{
		name: "a-change-takes-two-passes", file: "internal/node/streams.go",
		old: "		close(ended)\n",
		new: "		close(ended)\n		wake(s.due)\n",
		by:  "./internal/node TestOneMorePolicyConcernsNoOther",
	},
	{
		name: "a-slow-change-wakes-no-pass", file: "internal/node/streams.go",
		old: "s.late.Go(func() { <-ended; wake(s.due) })",
		new: "",
		by:  "./internal/node TestASlowStreamDelaysNoOther",
	},
	{
		name: "a-watch-names-no-changed-policy", file: "policy/store/policies.go",
		old: "names = append(names, r.Key)",
		new: "",
		by:  "./policy/store TestPutPolicy",
	},
	{
		name: "a-watch-names-changed-policies-again", file: "policy/store/policies.go",
		old: "			names = nil\n",
		new: "",
		by:  "./policy/store TestPutPolicy",
	},
	{
		name: "every-change-concerns-shared-limits", file: "workers/internal/core/policies.go",
		old: "names, sharing := slices.Collect(maps.Keys(e)), false",
		new: "names, sharing := slices.Collect(maps.Keys(e)), true",
		by:  "./workers/internal/core TestAChangeConcernsOnlyPoliciesThatShareLimits",
	},
	{
		name: "a-limit-outlives-the-policies-that-shared-it",
		file: "workers/internal/core/shared.go",
		old:  "maps.DeleteFunc(all, func(_ string, p *QueuePolicy) bool { return p.shared })",
		new:  "",
		by:   "./workers/internal/core TestAChangeConcernsOnlyPoliciesThatShareLimits",
	},
	{
		name: "a-stream-is-created-by-all-that-wait", file: "queue/stream.go",
		old: "if !before && b.saw(policy, config) {",
		new: "if false && !before {",
		by:  "./queue TestStreamsOfNewPoliciesAreCreatedInTurn",
	},
	{
		name: "a-lost-stream-counts-as-created", file: "queue/stream.go",
		old: "if !before && b.saw(policy, config) {",
		new: "if _ = before; b.saw(policy, config) {",
		by:  "./queue TestStreamsOfNewPoliciesAreCreatedInTurn",
	},
	{
		name: "orphans-alone-are-no-notes", file: "internal/node/policies.go",
		old: "open := map[string]string{}",
		new: "var open map[string]string",
		by:  "./internal/node TestOrphanedPoliciesAreNotes",
	},
	{
		name: "interrupted-counts", file: "workers/handler.go",
		old: "o.Kind == record.OutcomeFailed && ctx.Err() != nil",
		new: "false",
		by:  "./workers TestGraceEndsWithoutAnAttempt",
	},
	{
		name: "worker-thresholds-ignored", file: "workers/internal/valve/valve.go",
		old: "return free > 0 && b.busy() <= 3*(free-1)",
		new: "return free > 0",
		by:  "./workers/internal/valve TestNoBucketTakesAllWorkers",
	},
	{
		name: "costs-that-never-fit", file: "workers/internal/valve/startlimits.go",
		old: "case v.Policy.Paced() && cost > v.Policy.Capacity:",
		new: "case false:",
		by:  "./workers/internal/valve TestCostsThatNeverFit",
	},
	{
		name: "concurrency-one-more", file: "workers/internal/valve/bucket.go",
		old: "b.running >= b.concurrency",
		new: "b.running > b.concurrency",
		by:  "./workers/internal/valve TestLiveChangesOfConcurrencyAndWorkers",
	},

	{
		name: "attempts-of-the-dead-stand", file: "workers/internal/valve/settle.go",
		old: "err == nil && r.Epoch > s.Record.Epoch",
		new: "false",
		by:  "./workers TestAnAttemptRecordIsFenced",
	},
	{
		name: "attempts-of-the-dead-forgotten", file: "workers/internal/valve/settle.go",
		old: "if r.Stream == s.Record.Stream {",
		new: "if false {",
		by:  "./workers TestALateAttemptOfAFormerOwnerCounts",
	},
	{
		name: "noted-crash-holds-its-bucket", file: "workers/internal/valve/settle.go",
		old: "\tj.Bucket.noting--\n",
		new: "",
		by:  "./workers/internal/core TestSimulationLaws -seeds 40",
	},

	// Clocks and turns.

	{
		name: "smaller-burst-waits", file: "workers/internal/pace/clock.go",
		old: "fewer > 0 {",
		new: "fewer > 0 && false {",
		by:  "./workers/internal/valve TestASmallerBurstHoldsNothingUp",
	},
	{
		name: "burst-of-a-key-not-handed-over", file: "workers/internal/valve/handover.go",
		old: "c.Burst = c.pace.Burst",
		new: "c.Burst = 0",
		by:  "./workers/internal/valve TestASmallerBurstHoldsNothingUp",
	},
	{
		name: "burst-of-a-policy-not-handed-over", file: "workers/internal/valve/inherit.go",
		old: "cmp.Or(c.Burst, in.Handover.Burst)",
		new: "c.Burst",
		by:  "./workers/internal/valve TestASmallerBurstHoldsNothingUp",
	},
	{
		name: "late-start-leaves-no-burst", file: "workers/internal/pace/clock.go",
		old: "p.envelope = Times(burst-1, p.short) + tolerance",
		new: "p.envelope = tolerance",
		by:  "./workers/internal/valve TestALateBucketUsesItsBurst",
	},
	{
		name: "idle-credit-unlimited", file: "workers/internal/pace/clock.go",
		old: "c.Due, c.fraction = now.Add(-p.Credit), 0",
		new: "c.Due, c.fraction = now.Add(-p.Credit-10*time.Second), 0",
		by:  "./workers/internal/pace TestClockLongRunRate",
	},
	{
		name: "rate-slow-by-a-hundredth", file: "workers/internal/pace/clock.go",
		old: "uint64(p.Rate.Per))",
		new: "uint64(p.Rate.Per)*101/100)",
		by:  "./workers/internal/pace TestClockLongRunRate",
	},
	{
		name: "fractions-lost", file: "workers/internal/pace/clock.go",
		old: "min(whole, uint64(Forever)))), int64(rest)",
		new: "min(whole, uint64(Forever)))), 0*int64(rest)",
		by:  "./workers/internal/pace TestClockLosesNoFraction",
	},
	{
		name: "letters-without-a-fence", file: "workers/bury.go",
		old: "if fence, now := p.gate.check(); now >= fence {",
		new: "if fence, now := p.gate.check(); now >= fence && now < 0 {",
		by:  "./workers TestAProcessThatStoodStillBuriesNoJobOfAnother",
	},
	{
		name: "refused-renewals-without-a-pause", file: "workers/internal/core/lease.go",
		old: "again := max(now, p.sent.Add(c.margin()))",
		new: "again := now",
		by:  "./workers/internal/core TestRenewalsThatAreRefusedAtOnceAreSentAfterAPause",
	},
	{
		name: "tolerance-not-paid-for", file: "workers/internal/pace/clock.go",
		old: "float64(rate.Count) * (time.Second + tolerance).Seconds() / most",
		new: "float64(rate.Count) / most",
		by:  "./workers/internal/pace TestClockKeepsLaw2",
	},
	{
		name: "tolerance-of-every-peak", file: "workers/internal/pace/clock.go",
		old: "slack + min(Tolerance-slack, max(0, above-slack)*2/3)",
		new: "Tolerance + 0*above",
		by:  "./workers/internal/pace TestClockLongRunRate",
	},
	{
		name: "peak-ignored", file: "workers/internal/pace/clock.go",
		old: "most := peak *",
		new: "most := max(policy.DefaultPeak, 0*peak) *",
		by:  "./workers/internal/pace TestClockKeepsLaw2",
	},
	{
		name: "peak-of-a-policy-unheard", file: "workers/internal/valve/limits.go",
		old: "pace.New(p.Outflow, peak, p.Burst)",
		new: "pace.New(p.Outflow, policy.DefaultPeak+0*peak, p.Burst)",
		by:  "./workers/internal/valve TestPeaksReachTheClocks",
	},
	{
		name: "total-peak-of-a-policy-unheard", file: "workers/internal/valve/together.go",
		old: "p.PeakTotalRatio()",
		new: "p.PeakRatio()",
		by:  "./workers/internal/valve TestPeaksReachTheClocks",
	},
	{
		name: "peak-of-a-key-ignored", file: "policy/override.go",
		old: "return peakRatio(*o.Peak, o.Apply(p).Outflow)",
		new: "return p.PeakRatio()",
		by:  "./policy TestPeaksAreAboveTheirOutflows",
	},
	{
		name: "peak-below-the-outflow", file: "policy/validate.go",
		old: "peak.PerSecond() < outflow.PerSecond()*(1-1e-12)",
		new: "peak.PerSecond() < 0",
		by:  "./policy TestValidate",
	},
	{
		name: "lowered-limit-forgets-a-crash", file: "workers/internal/valve/together.go",
		old: "limits := t.Sized(h.Sizes)",
		new: "limits := t.Limits",
		by:  "./workers/internal/valve TestALimitThatWasLoweredAtACrashCountsStartsFromBefore",
	},
	{
		name: "refused-calls-come-back-together", file: "workers/internal/valve/claims.go",
		old: "v.expectCall(j, c.away, now)",
		new: "v.expectCall(j, nil, now)",
		by:  "./workers/internal/valve TestEachRefusedCallIsToldItsOwnTurn",
	},
	{
		name: "forecasts-of-limits-leave-out-calls", file: "workers/internal/valve/forecast.go",
		old: "v.quota.After(b.used, v.instant(now), calls.with(b.unitsOf(slots-calls.slots)), c)",
		new: "v.quota.After(b.used, v.instant(now), b.unitsOf(slots), c)",
		by:  "./workers/internal/valve TestWaitingCallsCountAgainstLimits",
	},
	{
		name: "late-start-lost", file: "workers/internal/valve/calls.go",
		old: "unusedWithin = 250 * time.Millisecond",
		new: "unusedWithin = 0 * time.Millisecond",
		by:  "./workers/internal/valve TestAStartThatCameTooLateIsGivenBack",
	},
	{
		name: "turns-without-weight", file: "workers/internal/valve/together.go",
		old: "float64(cost)/float64(b.weight)",
		new: "float64(cost)",
		by:  "./workers/internal/valve TestTotalOutflowIsSharedInTurns",
	},
	{
		name: "turns-earned-while-idle", file: "workers/internal/valve/schedule.go",
		old: "b.turns = max(b.turns, v.turns) // turns",
		new: "// turns",
		by:  "./workers/internal/valve TestANewBucketTakesNoTurnBeforeWaitingOnes",
	},
	{
		name: "turns-earned-while-held", file: "workers/internal/valve/together.go",
		old: "b.turns = v.turns + float64(cost)",
		new: "b.turns += float64(cost)",
		by:  "./workers/internal/valve TestAHeldBucketMissesItsTurns",
	},
	{
		name: "turns-stand-still", file: "workers/internal/valve/together.go",
		old: `v.turns = max(v.turns, b.turns)`,
		new: "",
		by:  "./workers/internal/valve TestTotalOutflowIsSharedInTurns",
	},
	{
		name: "turns-forgotten-with-the-bucket", file: "workers/internal/valve/schedule.go",
		old: "v.takesTurns() && ahead > 0 {",
		new: "false {",
		by:  "./workers/internal/valve TestTurnsAreRememberedWhileNothingWaits",
	},
	{
		name: "freedom-earns-a-burst", file: "workers/internal/valve/limits.go",
		old: "before.pace == nil || before.paused && !b.paused {",
		new: "before.paused && !b.paused {",
		by:  "./workers/internal/valve TestANewRateIsNoBurst",
	},
	{
		name: "pause-earns-a-burst", file: "workers/internal/valve/limits.go",
		old: "before.pace == nil || before.paused && !b.paused {",
		new: "before.pace == nil {",
		by:  "./workers/internal/valve TestAPauseEarnsNoBurst",
	},

	// Breakers.

	{
		name: "breaker-counts-a-job-twice", file: "workers/internal/valve/breaker.go",
		old: `if j.tried == 0 {
		b`,
		new: `{
		b`,
		by: "./workers/internal/valve TestAPoisonJobOpensNoBreaker",
	},
	{
		name: "breaker-of-all-counts-a-bucket-twice", file: "workers/internal/valve/breaker.go",
		old: "if !slices.Contains(v.suspects, b.key) {",
		new: `_ = slices.Contains(v.suspects, b.key)
	{`,
		by: "./workers/internal/valve TestAnOutageCountsNoAttemptsAndEndsWithoutAClump",
	},
	{
		name: "breaker-never-closes", file: "workers/internal/valve/breaker.go",
		old: `if v.breaker.asked(j) {
		v.recovered(now)`,
		new: "if v.breaker.asked(j) {",
		by:  "./workers/internal/valve TestAnOutageCountsNoAttemptsAndEndsWithoutAClump",
	},
	{
		name: "suspects-for-ever", file: "workers/internal/valve/breaker.go",
		old: `if !v.breaker.open {
		v.suspects = v.suspects[:0]
	}`,
		new: "",
		by:  "./workers/internal/valve TestBucketsInARowOpenTheBreakerOfAll",
	},
	{
		name: "breaker-closes-by-who-was-under-way", file: "workers/internal/valve/breaker.go",
		old: "return k.open && j.began > k.since",
		new: "return k.open",
		by:  "./workers/internal/valve TestEarlierRunsAreNoProbes",
	},
	{
		name: "probe-hangs-the-breaker", file: "workers/internal/valve/breaker.go",
		old: "return max(k.at, k.probe.began.Add(mostProbeWait))",
		new: "return pace.Never",
		by:  "./workers/internal/valve TestAProbeThatRunsForLongIsNotTheOnlyOne",
	},
	{
		name: "handed-over-probe-is-waited-for", file: "workers/internal/valve/breaker.go",
		old: `&&
		k.probe.Bucket.Part.state <= partitionLive`,
		new: "",
		by:  "./workers/internal/valve TestAProbeThatWasHandedOverIsNotWaitedFor",
	},
	{
		name: "breaker-closes-with-a-burst", file: "workers/internal/valve/breaker.go",
		old: "b.pace.Hold(&b.clock, now) // without a burst",
		new: "_ = now",
		by:  "./workers/internal/valve TestABreakerThatClosesIsNoBurst",
	},
	{
		name: "same-job-probes-again", file: "workers/internal/valve/bucket.go",
		old: `if r.tried != other.tried {
		return r.tried < other.tried
	}`,
		new: "",
		by:  "./workers/internal/valve TestPoisonJobsAtTheHeadDelayTheirBucketByOneProbe",
	},
	{
		name: "breaker-not-handed-over", file: "workers/internal/valve/handover.go",
		old: "if b.down() {",
		new: "if false {",
		by:  "./workers/internal/valve TestAnOpenBreakerIsHandedOver",
	},
	{
		name: "changed-policy-waits-for-the-probe", file: "workers/internal/valve/limits.go",
		old: "v.breaker.at = min(v.breaker.at, now)",
		new: "",
		by:  "./workers/internal/valve TestAChangedPolicyIsProbedAtOnce",
	},
	{
		name: "open-breaker-starts-all", file: "workers/internal/valve/gates.go",
		old: "h = hold{by: byBreaker, until: v.breaker.due()}",
		new: "h = hold{by: byBreaker}",
		by:  "./workers/internal/valve TestAnOutageCountsNoAttemptsAndEndsWithoutAClump",
	},
	{
		name: "probe-from-the-busiest", file: "workers/internal/valve/breaker.go",
		old: `if !v.breaker.open {
		return v.firstDue`,
		new: `if true {
		return v.firstDue`,
		by: "./workers/internal/valve TestEveryBucketIsProbed",
	},

	// Workers elsewhere.

	{
		name: "claims-of-hanging-buckets", file: "workers/internal/valve/claims.go",
		old: "if !by.Except[b.key] {",
		new: "if true {",
		by:  "./workers/internal/valve TestAClaimIsNotForABucketThatItsWorkerExcepts",
	},
	{
		name: "claims-of-what-is-due-alone", file: "workers/internal/valve/claims.go",
		old: "v.acted.Add(HoldFor)",
		new: "v.acted",
		by:  "./workers/internal/valve TestAClaimFitsAJobThatIsSoonDue",
	},
	{
		name: "claims-kept-when-closed", file: "workers/internal/valve/starts.go",
		old: "for k := v.claims.workers.First(); k != nil;",
		new: "for k := v.claims.workers.First(); false && k != nil;",
		by:  "./workers/internal/valve TestClaimsWhenStartsAreForbidden",
	},
	{
		name: "exceptions-unheard", file: "workers/remote.go",
		old: "Except: c.Except, Until",
		new: "Until",
		by:  "./workers TestRemoteAWorkerGetsNoJobThatItExcepts",
	},
	{
		name: "progress-without-renewal", file: "workers/remote.go",
		old: "default:\n\t\t\t\ttimer.Reset(patience)",
		new: "default:",
		by:  "./workers TestRemoteProgressExtendsAnAttempt",
	},
	{
		name: "open-claims-of-one-bucket", file: "workers/lender.go",
		old: "most := 3*(free-1) - open",
		new: "most := 3 * (free - 1)",
		by:  "./workers TestRoomForOtherDrainersJobs",
	},
	{
		name: "late-jobs-run", file: "workers/lender.go",
		old: "now.Since(k.at) > claims.Window,",
		new: "",
		by:  "./workers TestAJobThatIsReadTooLateGoesBack",
	},
	{
		name: "jobs-run-after-a-jump", file: "workers/lender.go",
		old: ", l.clock.Jumps() != k.jumps:",
		new: ":",
		by:  "./workers TestAJobThatIsReadTooLateGoesBack",
	},
	{
		name: "later-jobs-are-lost", file: "queue/claims/claims.go",
		old: "if turns == nil {",
		new: "if false {",
		by:  "./workers TestALateJobGoesBack",
	},
	{
		name: "gone-runs-on", file: "workers/lender.go",
		old: "t.State == job.TurnStop || t.State == job.TurnGone",
		new: "t.State == job.TurnStop",
		by:  "./workers TestAWorkerReportsUntilItsValveWaitsNoLonger",
	},
	{
		name: "interrupted-targets-are-down", file: "workers/handler.go",
		old: "o.Kind, o.Unavailable = record.OutcomeUncounted, false",
		new: "o.Kind = record.OutcomeUncounted",
		by:  "./workers TestAWorkerReportsUntilItsValveWaitsNoLonger",
	},
	{
		name: "settlements-of-any-size", file: "workers/internal/record/settlement.go",
		old: "return min(time.Duration(max(ms, 0)), mostPause/time.Millisecond) * time.Millisecond",
		new: "return time.Duration(ms) * time.Millisecond",
		by:  "./workers/internal/record TestSettlementsAreBounded",
	},

	// The limiters' rules.

	{
		name: "meter-passes-one-too-many", file: "algorithms/meter.go",
		old: "latest = m.add(exact{t, 0}, m.span(m.most))",
		new: "latest = m.add(exact{t, 0}, m.span(m.most+1))",
		by:  "./algorithms TestHistories",
	},
	{
		name: "meter-loses-fractions", file: "algorithms/meter.go",
		old: "return exact{us, frac}",
		new: `_ = frac
	return exact{us, 0}`,
		by: "./algorithms TestHistories",
	},
	{
		name: "meter-waits-too-short", file: "algorithms/meter.go",
		old: "return a.us + 1",
		new: "return a.us",
		by:  "./algorithms TestHistories",
	},
	{
		name: "meter-refunds-above-full", file: "algorithms/meter.go",
		old: `if at.us < t {
		return exact{}`,
		new: `if false {
		return exact{}`,
		by: "./algorithms TestARefundOfWhatHasRefilledLeavesTheBucketAsNew",
	},
	{
		name: "meter-trusts-the-future", file: "algorithms/meter.go",
		old: `case paidAt.after(latest):
		return latest, latest`,
		new: "",
		by:  "./algorithms TestHistories",
	},
	{
		name: "meter-refused-takes", file: "algorithms/meter.go",
		old: "if next := m.ask(d, at, latest, n); d.Allowed {",
		new: "if next := m.ask(d, at, latest, n); true {",
		by:  "./algorithms TestHistories",
	},
	{
		name: "fixed-window-one-more", file: "algorithms/fixedwindow.go",
		old: `if n <= f.Limit-s.Used {
		s.Used += n`,
		new: `if n <= f.Limit-s.Used+1 {
		s.Used += n`,
		by: "./algorithms TestHistories",
	},
	{
		name: "fixed-window-refund-below-zero", file: "algorithms/fixedwindow.go",
		old:        "s.Used -= min(n, s.Used)",
		new:        "s.Used -= n",
		equivalent: "what is below zero is loaded as zero",
	},
	{
		name: "log-counts-a-window-late", file: "algorithms/slidinglog.go",
		old: "if s.at(probe) > t {",
		new: "if s.at(probe) >= t {",
		by:  "./algorithms TestHistories",
	},
	{
		name: "log-forgets-refused", file: "algorithms/slidinglog.go",
		old: "case !l.CountAccepted:",
		new: "case !l.CountAccepted && allowed:",
		by:  "./algorithms TestHistories",
	},
	{
		name: "log-grows", file: "algorithms/slidinglog.go",
		old: `s.keep(l.Limit - n)
	s.add(t, n, l.grain())`,
		new: "s.add(t, n, l.grain())",
		by:  "./algorithms TestHistories",
	},
	{
		name: "log-refunds-the-oldest", file: "algorithms/slidinglog.go",
		old: `i := s.find(n + 1)
	s.end(i, s.at(i))
	s.drop(n)`,
		new: "s.keep(s.Units - n)",
		by:  "./algorithms TestRefundAtOnceLeavesNoTrace",
	},
	{
		name: "log-keeps-all-instants", file: "algorithms/slidinglog.go",
		old: "if l.Limit <= maxInstants {",
		new: "if true {",
		by:  "./algorithms TestALargeLogIsSmallAndNearlyExact",
	},
	{
		name: "log-makes-the-earlier-instant-of-two", file: "algorithms/slidinglog.go",
		old: "s.earlier[i-1] = entry",
		new: "s.earlier[i-1] = logEntry(s.at(i-1), entry)",
		by:  "./algorithms TestALargeLogIsSmallAndNearlyExact",
	},
	{
		name: "log-charge-drops-what-counts", file: "algorithms/slidinglog.go",
		old: "if l.count(&s, t); then <= t-l.Window.Microseconds() {",
		new: "if l.count(&s, max(t, then)); then <= t-l.Window.Microseconds() {",
		by:  "./algorithms TestALogChargesAtAnyInstant",
	},
	{
		name: "log-charges-as-of-the-latest", file: "algorithms/slidinglog.go",
		old: "s.insert(then, n, l.grain())",
		new: "s.add(s.Latest, n, l.grain())",
		by:  "./algorithms TestALogChargesAtAnyInstant",
	},
	{
		name: "answers-in-the-end-of-a-window-count-in-it", file: "workers/internal/quota/quota.go",
		old: "asked.wall.Add(2*l.guard + 2*l.off(at))}",
		new: "asked.wall}",
		by:  "./workers/internal/quota TestNoTargetGetsMoreThanALimitThatCountsFromTheAnswer",
	},
	{
		name: "handed-over-units-lapse-at-once", file: "workers/internal/quota/quota.go",
		old: "max(s.lapses, now.Own+l.timeout+travel+l.maxDelay)",
		new: "now.Own",
		by:  "./workers/internal/quota TestNoTargetGetsMoreThanALimitThatCountsFromTheAnswer",
	},
	{
		name: "a-crash-waits-for-no-late-request", file: "workers/internal/quota/quota.go",
		old: "s.lapses = max(s.lapses, to.Own+l.maxDelay)",
		new: "s.lapses = max(s.lapses, to.Own)",
		by:  "./workers/internal/quota TestNoTargetGetsMoreThanALimitThatCountsFromTheAnswer",
	},
	{
		name: "a-crash-forgets-what-was-open", file: "workers/internal/quota/quota.go",
		old: "st.loose = min(of.Most(), st.loose+min(most, of.Most()))",
		new: "st.loose = min(most, of.Most())",
		by:  "./workers/internal/quota TestNoTargetGetsMoreThanALimitThatCountsFromTheAnswer",
	},
	{
		name: "a-crash-forgets-unrecorded-requests", file: "workers/internal/quota/quota.go",
		old: "st.loose = min(of.Most(), st.loose+min(most, of.Most()))",
		new: "_ = most",
		by:  "./workers/internal/quota TestNoTargetGetsMoreThanALimitThatCountsFromTheAnswer",
	},
	{
		name: "held-units-are-not-handed-over", file: "workers/internal/quota/record.go",
		old: "st.out = of.held(&st) << 1",
		new: "st.out = 0",
		by:  "./workers/internal/quota TestNoTargetGetsMoreThanALimitThatCountsFromTheAnswer",
	},
	{
		name: "clocks-run-alike", file: "workers/internal/quota/quota.go",
		old: "*d += (*d/1000 + time.Microsecond - 1).Truncate(time.Microsecond)",
		new: "_ = d",
		by:  "./workers/internal/valve TestAUnitIsHeldUntilTheAnswer",
	},
	{
		name: "a-start-after-a-freeze-comes-back", file: "workers/internal/quota/quota.go",
		old: "return math.MaxInt64\n",
		new: "return l.guard / 2\n",
		by:  "./workers/internal/valve TestAFrozenStartNeedsNoGuard",
	},
	{
		name: "an-answer-wakes-nobody", file: "workers/internal/valve/startlimits.go",
		old: "if b := j.Bucket; b.heldBy != \"\" && b.Part.Live() {",
		new: "if b := j.Bucket; false {",
		by:  "./workers/internal/valve TestAUnitIsHeldUntilTheAnswer",
	},
	{
		name: "unsent-requests-count", file: "workers/internal/valve/startlimits.go",
		old: "Unsent: o.Answer == record.AnswerUnsent}",
		new: "Unsent: false}",
		by:  "./workers/internal/valve TestWhatIsNotSentIsGivenBack",
	},
	{
		name: "an-end-without-an-answer-counts-at-once", file: "workers/internal/quota/quota.go",
		old: "case e.Unanswered:\n",
		new: "case false:\n",
		by:  "./workers/internal/valve TestAnEndWithoutAnAnswerHoldsForTheLongestDelay",
	},
	{
		name: "a-lease-without-an-answer-frees-its-place", file: "workers/internal/valve/claims.go",
		old: "if ends || !v.lingers(j, o, k.Until()) {",
		new: "if true {",
		by:  "./workers/internal/valve TestACallHoldsItsPlaceUntilItsRequestCannotArrive",
	},
	{
		name: "an-answered-call-counts-from-its-end", file: "workers/internal/valve/calls.go",
		old: "v.answer(j, now, now)",
		new: "_ = v.answer",
		by:  "./workers/internal/valve TestACallCountsFromItsAnswer",
	},
	{
		name: "runs-of-partitions-that-left-keep-shared-units",
		file: "workers/internal/valve/settle.go",
		old:  "v.account(r.heldJob, o, true, now) // of limits that stay here",
		new:  "_ = v.account",
		by:   "./workers/internal/valve TestARunsShareIsReleasedWhereTheLimitIs",
	},
	{
		name: "the-loop-dates-answers-early", file: "workers/drainer.go",
		old: "do(d.now())\n\tdefault:",
		new: "do(d.ended)\n\tdefault:",
		by:  "./workers TestTheLoopReadsTheClockAfterItHasTakenAnEvent",
	},
	{
		name: "unlisted-buckets-count-whole-limits", file: "workers/internal/valve/startlimits.go",
		old: "in.Handover.Partial && (in.Crashed || told.Unlisted == 0)",
		new: "in.Handover.Partial",
		by:  "./workers/internal/valve TestAPartialHandoverBoundsUnlistedBuckets",
	},
	{
		name: "unlisted-buckets-count-nothing", file: "workers/internal/record/fit.go",
		old: "max(b.Unlisted, c.Units[cost], 1)",
		new: "max(b.Unlisted, 1)",
		by:  "./workers/internal/valve TestAPartialHandoverBoundsUnlistedBuckets",
	},
	{
		name: "open-units-of-unlisted-buckets-lapse", file: "workers/internal/valve/startlimits.go",
		old: "if c.open {",
		new: "if false {",
		by:  "./workers/internal/valve TestAPartialHandoverBoundsUnlistedBuckets",
	},
	{
		name: "buckets-with-open-units-are-cut-too", file: "workers/internal/valve/handover.go",
		old: "\tcase a.Open && !b.Open:\n\t\treturn -1\n\tcase b.Open && !a.Open:\n\t\treturn 1\n",
		new: "",
		by:  "./workers/internal/valve TestAPartialHandoverBoundsUnlistedBuckets",
	},
	{
		name: "full-buckets-are-cut-too", file: "workers/internal/valve/handover.go",
		old: "cmp.Compare(b.units, a.units)",
		new: "0",
		by:  "./workers/internal/valve TestAPartialHandoverBoundsUnlistedBuckets",
	},
	{
		name: "outcomes-from-before-release-units", file: "workers/internal/valve/startlimits.go",
		old: "!local && !o.Ended && ",
		new: "!local && ",
		by:  "./workers/internal/valve TestWhatEndedBeforeAHandoverHoldsNothing",
	},
	{
		name: "late-ends-release-shared-units", file: "workers/internal/valve/together.go",
		old: "\tl.ends, l.answers = false, false\n",
		new: "",
		by:  "./workers/internal/valve TestAnEndReleasesNoUnitOfASharedLimitThatMoved",
	},
	{
		name: "runs-of-lost-records-have-ended", file: "workers/internal/valve/startlimits.go",
		old: "in.Handover.Open || in.Handover.ByCost == nil",
		new: "in.Handover.Open",
		by:  "./workers/internal/valve TestWithoutARecordAllIsHeldUntilRunsMustHaveEnded",
	},
	{
		name: "a-failed-run-keeps-no-place", file: "workers/pool.go",
		old: "p.linger(job, &o)\n",
		new: "",
		by:  "./workers TestAFailedRunKeepsItsPlaceForTheLongestDelay",
	},
	{
		name: "a-handlers-answer-is-not-heard", file: "workers/pool.go",
		old: "if j.settled.maxDelay > 0 {",
		new: "if false {",
		by:  "./workers TestAHandlersAnswerCounts",
	},
	{
		name: "held-units-do-not-count", file: "algorithms/holding.go",
		old: "all := s.Units + n",
		new: "all := n",
		by:  "./algorithms TestNoArrivalsBeyondTheBound",
	},
	{
		name: "units-count-from-the-start", file: "algorithms/holding.go",
		old: "s.Units, d.Granted, d.Remaining = s.Units+n, n, d.Remaining-n",
		new: "s.Counted, d.Granted = h.Rule.Charge(s.Counted, now, now, n), n",
		by:  "./algorithms TestNoArrivalsBeyondTheBound",
	},
	{
		name: "answers-dated-by-the-earlier-clock", file: "algorithms/holding.go",
		old: "h.Rule.Charge(s.Counted, now, at, n)",
		new: "h.Rule.Charge(s.Counted, now, now, n)",
		by:  "./algorithms TestNoArrivalsBeyondTheBound",
	},
	{
		name: "held-units-of-a-counter", file: "algorithms/bound.go",
		old: `if b.Estimated {
		return ErrEstimated`,
		new: `if false {
		return ErrEstimated`,
		by: "./algorithms TestASlidingCounterCannotBoundArrivals",
	},
	{
		name: "meter-charge-is-cut-at-full", file: "algorithms/meter.go",
		old: "return m.add(paidAt, m.span(min(n, m.most)))",
		new: `next := m.add(paidAt, m.span(min(n, m.most)))
	if full := m.add(exact{at, 0}, m.span(m.most)); next.after(full) {
		return full
	}
	return next`,
		by: "./algorithms TestNoArrivalsBeyondTheBound",
	},
	{
		name: "meter-charges-as-of-when-it-was-empty", file: "algorithms/meter.go",
		old: "if paidAt.us < at {",
		new: "if paidAt.us <= 0 {",
		by:  "./algorithms TestNoArrivalsBeyondTheBound",
	},
	{
		name: "fixed-window-charges-the-earlier", file: "algorithms/fixedwindow.go",
		old: "s, _ = f.load(s, max(t, then))",
		new: "s, _ = f.load(s, t)",
		by:  "./algorithms TestNoArrivalsBeyondTheBound",
	},
	{
		name: "counter-forgets-the-previous", file: "algorithms/slidingcounter.go",
		old: "weighted, _ := mulDiv(s.Previous, w-max(0, t-s.Start), w)",
		new: "weighted, _ := mulDiv(0, w-max(0, t-s.Start), w)",
		by:  "./algorithms TestHistories",
	},
	{
		name: "counter-retry-a-microsecond-early", file: "algorithms/slidingcounter.go",
		old: "return w + 1 - q",
		new: "return w - q",
		by:  "./algorithms TestHistories",
	},
	{
		name: "counter-refund-leaves-previous", file: "algorithms/slidingcounter.go",
		old: "s.Previous -= min(n-current, s.Previous)",
		new: "",
		by:  "./algorithms TestARefundReachesIntoTheWindowBefore",
	},
	{
		name: "delay-forgets-the-burst", file: "algorithms/leakingbucket.go",
		old: "m.span(max(b.Burst, 1))",
		new: "m.span(1)",
		by:  "./algorithms TestLeakingBucketBurstLeavesTogether",
	},
	{
		name: "combine-any-allows", file: "algorithms/combine.go",
		old: "combined.Allowed && d.Allowed",
		new: "combined.Allowed || d.Allowed",
		by:  "./algorithms TestCombine",
	},
	{
		name: "combine-shortest-wait", file: "algorithms/combine.go",
		old: "max(combined.RetryAfter, d.RetryAfter)",
		new: "min(combined.RetryAfter, d.RetryAfter)",
		by:  "./algorithms TestCombine",
	},
	{
		name: "combine-ruled-by-the-first", file: "algorithms/combine.go",
		old: "ruling = i + 1",
		new: "_ = i",
		by:  "./algorithms TestCombine",
	},
	{
		name: "memstore-evicts-nothing", file: "algorithms/memstore/memstore.go",
		old: "&& over <= 0 ||",
		new: "|| over != 0 ||",
		by:  "./algorithms/memstore TestMemoryIsBounded",
	},
	{
		name: "memstore-logs-weigh-nothing", file: "algorithms/memstore/memstore.go",
		old: "shard.bytes += stateSize(state) - before",
		new: "_ = before",
		by:  "./algorithms/memstore TestMemoryIsBounded",
	},

	// Admission.

	{
		name: "two-replicas", file: "internal/installation/installation.go",
		old: "n != 1 && n != 3 && n != 5",
		new: "n < 1 || n > 5",
		by:  "./internal/installation TestReplicasAreAnOddNumber",
	},
	{
		name: "a-route-for-anyone", file: "admission/httpapi/routes.go",
		old: `"/v1/purge/{policy}/{key...}", access.Operate`,
		new: `"/v1/purge/{policy}/{key...}", 0`,
		by:  "./admission/httpapi TestEachRouteAsksForItsRights",
	},
	{
		name: "answers-anywhere", file: "admission/natsapi/service.go",
		old: "if !s.names.IsReply(r.Reply()) {",
		new: `if r.Reply() == "" {`,
		by:  "./admission/natsapi TestAnswersGoToNoSubjectOfPenstockOrTheServer",
	},
	{
		name: "an-inbox-for-all", file: "queue/roles/roles.go",
		old: `inbox := []string{Inbox(user) + ".>"}`,
		new: `inbox := []string{Inbox(user) + ".>", "_INBOX.>"}`,
		by:  "./deploy TestRolesConfMatchesTheEmbeddedServersRoles",
	},
	{
		name: "a-signature-without-time", file: "workers/httptarget/sign.go",
		old: `mac.Write([]byte(at + "."))`,
		new: `mac.Write([]byte("."))`,
		by:  "./workers/httptarget TestRequestsAreSignedForPoliciesOfTheFile",
	},
	{
		name: "rights-of-any-key", file: "admission/httpapi/routes.go",
		old: "return at.client.MayPolicy(rt.right, at.policy)",
		new: "return at.client.May(rt.right)",
		by:  "./admission/httpapi TestEachRouteNeedsItsRight",
	},
	{
		name: "a-batch-for-any-policy", file: "admission/httpapi/routes.go",
		old: "if c.MayKey(access.Submit, r.Policy, r.Key.Raw()) {",
		new: "if c.May(access.Submit) {",
		by:  "./admission/httpapi TestABatchChecksTheRightsForEachJob",
	},
	{
		name: "a-plain-job-with-escapes", file: "admission/httpapi/batch.go",
		old: "case c < ' ' || c > '~' || c == '\\\\':",
		new: "case c < ' ' || c > '~':",
		by:  "./admission/httpapi TestPlainJobsAreReadAsJSON",
	},
	{
		name: "allowed-for-ever", file: "workers/internal/valve/startlimits.go",
		old: "a.seq == head.Seq && now < a.until &&",
		new: "a.seq == head.Seq &&",
		by:  "./workers/internal/valve TestAJobThatHasWaitedForAWorkerAsksItsLimitsAgain",
	},
	{
		name: "allowed-into-the-end-of-a-window", file: "workers/internal/quota/quota.go",
		old: "until = min(until, now.Own+left-quiet)",
		new: "until = min(until, now.Own+left)",
		by:  "./workers/internal/valve TestAJobThatHasWaitedForAWorkerAsksItsLimitsAgain",
	},
	{
		name: "a-window-that-never-ends", file: "algorithms/calendar.go",
		old: "t < f.last.start || t >= f.last.end {",
		new: "t < f.last.start || f.last.end == 0 {",
		by:  "./workers/internal/quota TestNoLimitIsEverBroken",
	},
	{
		name: "exemplars-of-any-trace", file: "queue/job/headers.go",
		old: "err != nil || flags&1 == 0 ||",
		new: "err != nil || flags > 255 ||",
		by:  "./queue/job TestSampledTrace",
	},
	{
		name: "no-exemplars", file: "internal/telemetry/metrics.go",
		old: "EnableOpenMetrics:   true, // for exemplars",
		new: "",
		by:  "./cmd/admitter TestAJobIsOneTrace",
	},
	{
		name: "any-path-for-nobody", file: "admission/httpapi/handler.go",
		old: "found == nil && !strings.HasPrefix(path, root)",
		new: "found == nil",
		by:  "./admission/httpapi TestEachRouteNeedsItsRight",
	},
	{
		name: "a-certificate-that-nobody-verified", file: "admission/access/request.go",
		old: "len(r.TLS.VerifiedChains) > 0 {\n\t\t" +
			"return cs.withCertificate(r.TLS.VerifiedChains[0][0])",
		new: "len(r.TLS.PeerCertificates) > 0 {\n\t\t" +
			"return cs.withCertificate(r.TLS.PeerCertificates[0])",
		by: "./admission/access TestAClientIsKnownByTokenOrCertificate",
	},
	{
		name: "a-bad-file-of-clients-counts", file: "internal/follow/follow.go",
		old: "if err == nil {\n\t\tc.current.Store(read)",
		new: "if read != nil || err != nil {\n\t\tc.current.Store(read)",
		by:  "./internal/guard TestClientsAreKnownOverTLSAndFilesAreFollowed",
	},
	{
		name: "outcomes-signed-by-anothers-policy", file: "admission/httpapi/routes.go",
		old: "!c.MayPolicy(access.Admin, through)", new: "!c.May(access.Admin)",
		by: "./cmd/admitter TestAttemptsToReachInsideFail",
	},
	{
		name: "the-server-inside-demands-no-certificate", file: "internal/guard/tls.go",
		old: "config.ClientAuth = tls.RequireAndVerifyClientCert",
		new: "config.ClientAuth = tls.VerifyClientCertIfGiven",
		by:  "./cmd/admitter TestTheEmbeddedServersCertificateIsReloaded",
	},
	{
		name: "others-reach-it-unguarded", file: "internal/hosts/hosts.go",
		old: "return address.Unmap().IsLoopback()",
		new: "return address.Unmap().IsLoopback() || address.IsUnspecified()",
		by:  "./internal/guard TestListeningElsewhereNeedsAuthentication",
	},
	{
		name: "events-for-who-is-no-longer-known", file: "admission/httpapi/events.go",
		old: "case e, more := <-l.Events:\n\t\t\tif m.rights() != rights {",
		new: "case e, more := <-l.Events:\n\t\t\tif false {",
		by:  "./admission/httpapi TestEventsAreFilteredByRights",
	},
	{
		name: "events-for-everybody", file: "admission/httpapi/events.go",
		old: "at.client.MayKey(access.Read, e.Policy, e.Key)",
		new: "at.client.May(access.Read)",
		by:  "./admission/httpapi TestEventsAreFilteredByRights",
	},
	{
		name: "a-slow-listener-loses-events", file: "admission/watch/watch.go",
		old: "			w.end(l, Slow)\n",
		new: "",
		by:  "./admission/watch TestASlowListenerIsDropped",
	},
	{
		name: "events-heard-for-nobody", file: "admission/watch/watch.go",
		old: "	w.silence()\n}\n\nfunc (w *Watch) silence",
		new: "}\n\nfunc (w *Watch) silence",
		by:  "./admission/watch TestAWatchSubscribesOnlyWhileInUse",
	},
	{
		name: "counts-wait-for-a-watch", file: "queue/minutes.go",
		old: "		g.recent.add(now, what)\n",
		new: "",
		by:  "./admission/watch TestStatsCoverTheLastMinuteOfAllProcesses",
	},
	{
		name: "counts-of-others-are-left-out", file: "admission/watch/stats.go",
		old: "			sum.Add(r)\n",
		new: "			_ = r\n",
		by:  "./admission/watch TestStatsCoverTheLastMinuteOfAllProcesses",
	},
	{
		name: "cut-off-and-certain", file: "admission/watch/stats.go",
		old: "	if w.unasked {",
		new: "	if false {",
		by:  "./admission/watch TestStatsCoverTheLastMinuteOfAllProcesses",
	},
	{
		name: "a-minute-is-never-over", file: "queue/recent.go",
		old: "if p.number < first || ",
		new: "if ",
		by:  "./queue TestCountsOfTheLastMinuteAreForgottenAfterwards",
	},
	{
		name: "the-room-in-bytes-is-hidden", file: "admission/manage/buckets.go",
		old: "page.Bytes = api.Fill(bytes)",
		new: "_ = bytes",
		by:  "./admission/httpapi TestManageBuckets",
	},
	{
		name: "a-written-answer-differs-from-its-struct", file: "admission/answer/answer.go",
		old: "`,\"no_result\":\"`",
		new: "`,\"noresult\":\"`",
		by:  "./admission/answer TestAnswersWrittenByHandAreTheStructs",
	},
	{
		name: "missed-and-not-told", file: "admission/watch/watch.go",
		old: "return first == from+1",
		new: "return true",
		by:  "./admission/watch TestAReconnectReplaysKeptEvents",
	},
	{
		name: "a-route-that-nobody-knows", file: "admission/httpapi/routes.go",
		old: `"/v1/drainers"`,
		new: `"/v1/owners"`,
		by:  "./admission/httpapi TestManagePaths",
	},
	{
		name: "malformed-header-says-its-name-twice", file: "queue/job/headers.go",
		old: "return &HeaderError{header, cause.Error(), cause}",
		new: `return &HeaderError{header, header + ": " + cause.Error(), cause}`,
		by:  "./admission TestReadHeaderRefuses",
	},
	{
		name: "production-yaml-shows-another-prefix", file: "config/config.go",
		old: "Prefix:   installation.DefaultPrefix,",
		new: `Prefix:   installation.DefaultPrefix + "s",`,
		by:  "./deploy TestEveryFile",
	},
	{
		name: "the-alerts-ask-for-another-metric-of-calls", file: "internal/telemetry/outbound.go",
		old: `"penstock_outbound_requests_total"`,
		new: `"penstock_outbound_calls_total"`,
		by:  "./deploy TestEveryFile",
	},
	{
		name: "a-metric-is-shown-nowhere", file: "internal/telemetry/outbound.go",
		old: `"penstock_outbound_wait_seconds"`,
		new: `"penstock_outbound_delay_seconds"`,
		by:  "./deploy TestEveryMetricIsOnTheDashboardOrInAnAlert",
	},
	{
		name: "a-file-s-target-may-be-link-local", file: "config/load.go",
		old: "if err := rules.CheckHost(to.Hostname()); err != nil {",
		new: "if err := rules.CheckHost(to.Hostname()); err != nil && false {",
		by:  "./config TestProblems",
	},
	{
		name: "a-log-without-its-reader-kills", file: "internal/daemon/daemon.go",
		old: "signal.Ignore(syscall.SIGPIPE)",
		new: "",
		by:  "./cmd/admitter TestALogWithoutItsReaderEndsNoProcess",
	},
	{
		name: "ten-is-eight-in-a-file", file: "internal/decode/decode.go",
		old: "case base == 0 && zeroFirst.MatchString(digits):",
		new: "case false && zeroFirst.MatchString(digits):",
		by:  "./internal/strict TestANumberThatBeginsWithZeroIsRefused",
	},
	{
		name: "one-unknown-field-of-several", file: "internal/decode/decode.go",
		old: "hint, rest, _ := strings.Cut(names[len(quoted):], \", \")",
		new: "hint, rest := names[len(quoted):], \"\"",
		by:  "./internal/strict TestAllMistakesAreReportedTogether",
	},
	{
		name: "depth-is-reported-twice", file: "internal/strict/file.go",
		old: "if len(n.Content) > 0 && depth >= mostDepth ||",
		new: "if depth >= mostDepth ||",
		by:  "./internal/strict TestEachProblemIsReportedOnce",
	},
	{
		name: "documents-of-any-depth", file: "internal/strict/file.go",
		old: "const mostFields, mostDepth = 10_000, 100",
		new: "const mostFields, mostDepth = 10_000, 1000",
		by:  "./config TestFilesInEveryForm",
	},
	{
		name: "the-file-goes-over-variables", file: "config/settings.go",
		old: "_ = v.BindEnv(s.key)", new: "_ = s.key",
		by: "./config TestEachSettingComesFromFlagVariableFileOrDefault",
	},
	{
		name: "an-empty-variable-is-no-value", file: "config/settings.go",
		old: "v.AllowEmptyEnv(true)", new: "v.AllowEmptyEnv(false)",
		by: "./config TestAVariableThatIsSetButEmpty",
	},
	{
		name: "a-backup-replaces-a-directory-or-device", file: "cmd/admitter/backup.go",
		old: `file == "" || err == nil && !info.Mode().IsRegular()`,
		new: `file == "" || err == nil && info == nil`,
		by:  "./cmd/admitter TestALostDirectoryComesBack",
	},
	{
		name: "redis-has-longer-than-its-store-says", file: "config/config.go",
		old: "Timeout: 50 * time.Millisecond,",
		new: "Timeout: 500 * time.Millisecond,",
		by:  "./config TestTheDefaultsOfRedis",
	},
	{
		name: "close-forgets-run", file: "run.go",
		old: "		p.end(ErrClosed)",
		new: "",
		by:  ". TestRunIsCalledOnce",
	},
	{
		name: "waits-outlive-a-close-before-run", file: "run.go",
		old: "			p.door.Stop() // if Run was never called\n",
		new: "",
		by:  ". TestCloseBeforeRunEndsWaits",
	},
	{
		name: "a-lost-answer-is-awaited-for-good", file: "admission/answer/ask.go",
		old: "context.WithTimeout(ctx, r.Wait+patience)",
		new: "context.WithCancel(ctx)",
		by:  ". TestALostAnswerIsNotAwaitedForever",
	},
	{
		name: "a-handler-that-exits-is-done", file: "workers/handler.go",
		old: "Kind: record.OutcomeFailed, Answer: record.AnswerNone,\n		Error: \"the handler",
		new: "Kind: record.OutcomeDone, Answer: record.AnswerNone,\n		Error: \"the handler",
		by:  "./workers TestDrainerOutcomes",
	},
	{
		name: "a-share-is-freed-too-early", file: "admission/limiter/guard.go",
		old: "if time.Since(s.last)/2 < q.Window {",
		new: "if time.Since(s.last) < q.Window {",
		by:  "./admission/limiter TestASharesMemoryIsFreedOnceItsKeysAreAsNew",
	},
	{
		name: "a-wait-outlives-close", file: "client.go",
		old: "cmp.Or(p.usable(), err)\n	})",
		new: "err\n	})",
		by:  ". TestCloseEndsRun",
	},
	{
		name: "a-second-handler-is-taken", file: "penstock.go",
		old: "	case p.handled[policy]:",
		new: "	case p.handled[policy] && false:",
		by:  ". TestHandlersAreRegisteredBeforeRun",
	},
	{
		name: "refusals-for-a-minute", file: "admission/refusals.go",
		old: "hold: min(interval, maxHold)",
		new: "hold: interval",
		by:  "./admission TestRefusalIsRememberedForOneIntervalAtMost",
	},
	{
		name: "refusal-holds-too-long", file: "admission/refusals.go",
		old: "if known.free.Before(known.until) {",
		new: "if false {",
		by:  "./admission TestFloodAtAFullBucketCostsNoPublishes",
	},
	{
		name: "refusals-without-bound", file: "admission/refusals.go",
		old: "if len(r.buckets) < maxRefusals || r.buckets[key] != nil {",
		new: "if true {",
		by:  "./admission TestRefusalsAreBounded",
	},
	{
		name: "repeats-refused-from-memory", file: "admission/submit.go",
		old: `if job.idempotency == "" {
		if full`,
		new: `{
		if full`,
		by: "./admission TestRepeatGetsTheFirstAnswerFromAFullBucket",
	},
	{
		name: "repeats-without-bound", file: "admission/repeats.go",
		old: "r.forget(now, maxRepeats-1)",
		new: "",
		by:  "./admission TestRepeatsAreBounded",
	},
	{
		name: "repeats-live-for-ever", file: "admission/repeats.go",
		old: "|| len(r.order) > 0 && now.Sub(r.order[0].at) >= r.window",
		new: "",
		by:  "./admission TestRepeatsAreBounded",
	},
	{
		name: "repeats-keep-the-last-answer", file: "admission/repeats.go",
		old: `if _, found := r.receipts[job]; found {
		return
	}`,
		new: "",
		by:  "./admission TestRepeatsAreBounded",
	},
	{
		name: "repeat-asks-the-limiter", file: "admission/submit.go",
		old: "if receipt, found := live.repeats.recall(repeat); found {",
		new: "if receipt, found := live.repeats.recall(repeat); found && false {",
		by:  "./admission TestDoorWithQueue",
	},
	{
		name: "unknown-result-is-refunded", file: "admission/submit.go",
		old: `||
			!errors.Is(err, queue.ErrUnavailable) && ctx.Err() == nil {`,
		new: "|| true {",
		by:  "./admission TestDoorWithQueue",
	},
	{
		name: "refused-job-keeps-its-units", file: "admission/submit.go",
		old: `||
			!errors.Is(err, queue.ErrUnavailable) && ctx.Err() == nil {`,
		new: "|| false && ctx.Err() == nil {",
		by:  "./admission TestDoorWithQueue",
	},
	{
		name: "not-sent-keeps-its-units", file: "admission/submit.go",
		old: "err == nil || errors.Is(err, queue.ErrNotSent) ||",
		new: "err == nil ||",
		by:  "./admission TestDoorWithQueue",
	},
	{
		name: "door-takes-one", file: "admission/submit.go",
		old: "limiter.Take(ctx, from, j.cost)",
		new: "limiter.Take(ctx, from, 1)",
		by:  "./admission TestDoorWithQueue",
	},
	{
		name: "allowed-though-it-waits", file: "admission/submit.go",
		old: "if o.DelayKnown && o.Delay == 0 {",
		new: "if o.DelayKnown {",
		by:  "./admission TestSubmitVerdicts",
	},

	// Streams, their capacity and the store.

	{
		name: "bound-of-all-buckets", file: "queue/stream.go",
		old: "DiscardNewPerSubject: true,",
		new: "DiscardNewPerSubject: false,",
		by:  "./queue TestApplyCreatesTheStreamOfTheContract",
	},
	{
		name: "full-drops-the-oldest", file: "queue/stream.go",
		old: `jetstream.DiscardNew,
		DiscardNewPerSubject: true,`,
		new: "jetstream.DiscardOld,",
		by:  "./queue TestApplyCreatesTheStreamOfTheContract",
	},
	{
		name: "partitions-may-change", file: "queue/stream.go",
		old: "if was, is := have.Metadata[metaPartitions], want.Metadata[metaPartitions]; " +
			"was != is {",
		new: "if was, is := have.Metadata[metaPartitions], want.Metadata[metaPartitions]; " +
			"false {",
		equivalent: "the subject transform holds the number too, and is compared as well",
	},
	{
		name: "capacity-lowered-below-what-is-held", file: "queue/door.go",
		old: "depth > uint64(capacity) {",
		new: "false && depth > uint64(capacity) {",
		by:  "./queue TestLoweringIsRefusedWhileABucketIsDeeper",
	},
	{
		name: "capacity-lowered-with-an-open-door", file: "queue/door.go",
		old: "b.shut(ctx, policy, have)",
		new: "b.settled(ctx, policy)",
		by:  "./queue TestLoweringUnderFlowLosesNothing",
	},
	{
		name: "door-stays-closed", file: "queue/door.go",
		old: "if openErr := b.js.UpdateStream(context.WithoutCancel(ctx), open); openErr != nil {",
		new: "if openErr := ctx.Err(); openErr != nil {",
		by:  "./queue TestAClosedDoorIsReopened",
	},
	{
		name: "retired-with-jobs", file: "queue/door.go",
		old: "if err != nil || state.Msgs > 0 {",
		new: "if err != nil || state.Msgs > 1<<40 {",
		by:  "./queue TestRetire",
	},
	{
		name: "lock-not-released", file: "queue/kv/lock.go",
		old: "unlockErr := t.Delete(held, name, revision); unlockErr != nil {",
		new: "unlockErr := error(nil); unlockErr != nil || revision == 0 {",
		by:  "./queue/kv TestALockIsReleasedWithItsChange",
	},
	{
		name: "streams-created-at-once", file: "queue/stream.go",
		old: "	if b.replicas > 1 {\n		return b.create(",
		new: "	if b.replicas > 0 {\n		return b.create(",
		by:  "./queue TestStreamsOfNewPoliciesAreCreatedInTurn",
	},
	{
		name: "a-list-of-before-the-rest-rouses", file: "queue/rest.go",
		old: "since.(time.Time).Before(found.began) && (",
		new: "(since != nil) && (",
		by:  "./queue TestTheListsOfAnotherBrokerRouse",
	},
	{
		name: "own-bounds-take-all", file: "queue/storage.go",
		old: "scale: min(1, float64(part-least*int64(len(sharing)))/max(1, owned))",
		new: "scale: min(1, float64(part)/max(1, owned))",
		by:  "./queue TestDivide",
	},
	{
		name: "own-bounds-not-scaled", file: "queue/storage.go",
		old: "case s.scale < 1:",
		new: "case s.scale < 0:",
		by:  "./queue TestDivide",
	},
	{
		name: "fuller-streams-not-counted", file: "queue/storage.go",
		old: "free -= max(s.bound(x.own), x.used)",
		new: "free -= s.bound(x.own)",
		by:  "./queue TestDivide",
	},
	{
		name: "draining-stream-leaves-no-less", file: "queue/storage.go",
		old: "free -= left[0].used",
		new: "",
		by:  "./queue TestDivide",
	},
	{
		name: "no-least-share", file: "queue/storage.go",
		old: "s.level = rounded(max(level, least, 1))",
		new: "s.level = rounded(max(level, 1))",
		by:  "./queue TestDivide",
	},
	{
		name: "bounds-not-rounded", file: "queue/storage.go",
		old: "return 1 << (bits.Len64(uint64(n)) - 1)",
		new: `_ = bits.Len64
	return n`,
		by: "./queue TestDivideRarely",
	},
	{
		name: "jobs-take-records-room", file: "queue/storage.go",
		old: "jobsNumerator    = 10",
		new: "jobsNumerator    = 14",
		by:  "./queue TestJobsAndLettersLeaveRoomForRecords",
	},
	{
		name: "foreign-streams-not-counted", file: "queue/storage.go",
		old: "foreign += max(config.MaxBytes, x.used)",
		new: "foreign += 0 * max(config.MaxBytes, x.used)",
		by:  "./queue TestStreamsOfOthersLeaveLessToShare",
	},
	{
		name: "raised-before-lowered", file: "queue/storage.go",
		old: "[]bool{true, false}",
		new: "[]bool{false, true}",
		by:  "./queue TestRationObeysPolicies",
	},
	{
		name: "partition-of-another-hash", file: "queue/job/key.go",
		old: "fnv.New32a()",
		new: "fnv.New32()",
		by:  "./queue TestPartitionIsTheServers",
	},
	{
		name: "keys-collide", file: "queue/job/key.go",
		old: "c != '>' && c != '%'",
		new: "c != '>'",
		by:  "./queue/job TestEncodeKey",
	},

	// Backlogs: delivery, acknowledgements, malformed messages.

	{
		name: "gap-unnoticed", file: "queue/internal/jsapi/pull.go",
		old: "if meta.consumerSeq != p.Received+1 {",
		new: "if false {",
		by:  "./queue/internal/jsapi TestAGapInDeliveriesBreaks",
	},
	{
		name: "lost-tail-unnoticed", file: "queue/internal/jsapi/pull.go",
		old: "if p.promised > p.Received {",
		new: "if false {",
		by:  "./queue/internal/jsapi TestHeartbeatShowsLostDeliveries",
	},
	{
		name: "silence-unnoticed", file: "queue/internal/jsapi/pull.go",
		old: "return nil, ErrSilence",
		new: "continue",
		by:  "./queue/internal/jsapi TestSilenceBreaks",
	},
	{
		name: "reconnect-unnoticed", file: "queue/internal/jsapi/pull.go",
		old: `case <-p.Lost:
			return nil, ErrReconnected`,
		new: `case <-p.Lost:
			continue`,
		by: "./queue TestBacklogBreaks",
	},
	{
		name: "ended-pulls-not-renewed", file: "queue/internal/jsapi/pull.go",
		old: "p.open -= rest",
		new: "_ = rest",
		by:  "./queue/internal/jsapi TestPullsThatEndTogetherAreRenewed",
	},
	{
		name: "domain-of-an-ack-subject", file: "queue/internal/jsapi/pull.go",
		old: "skip = 4",
		new: "skip = 3",
		by:  "./queue/internal/jsapi TestParseAckSubject",
	},
	{
		name: "old-consumer-stays", file: "queue/consumer.go",
		old: "if err := l.b.js.DeleteConsumer(ctx, l.stream, name); err != nil {",
		new: "if err := error(nil); err != nil {",
		by:  "./queue TestTakeoverHandsOverEverythingUnacknowledged",
	},
	{
		name: "own-epochs-consumer-is-taken-over", file: "queue/consumer.go",
		old: "if err := l.b.js.DeleteConsumer(ctx, l.stream, name); err != nil {",
		new: `if epoch == l.o.Epoch {
				continue
			}
			if err := l.b.js.DeleteConsumer(ctx, l.stream, name); err != nil {`,
		by: "./queue TestOpeningTheSameEpochStartsOver",
	},
	{
		name: "newer-epoch-evicted", file: "queue/consumer.go",
		old: "case epoch > l.o.Epoch:",
		new: "case false:",
		by:  "./queue TestTakeoverHandsOverEverythingUnacknowledged",
	},
	{
		name: "other-partitions-evicted", file: "queue/consumer.go",
		old: "!ours || partition != l.o.Partition:",
		new: "!ours || partition < 0:",
		by:  "./queue TestPartitionsAreOpenedSideBySide",
	},
	{
		name: "filter-for-one-partition", file: "queue/consumer.go",
		old: `if l.o.Partitions == 1 {
		return
	}`,
		new: "",
		by:  "./queue TestConsumerOfTheContract",
	},
	{
		name: "ack-wait-of-a-minute", file: "queue/consumer.go",
		old: "ackWait = 365 * 24 * time.Hour",
		new: "ackWait = time.Minute",
		by:  "./queue TestConsumerOfTheContract",
	},
	{
		name: "ack-pending-bounded", file: "queue/consumer.go",
		old: "MaxAckPending: -1",
		new: "MaxAckPending: 1000",
		by:  "./queue TestConsumerOfTheContract",
	},
	{
		name: "large-backlogs-with-bodies", file: "queue/backlog.go",
		old: "info.State.Bytes > uint64(cmp.Or(o.Holds, defaultHolds))",
		new: "false",
		by:  "./queue TestALargeBacklogComesWithoutBodies",
	},
	{
		name: "bodies-without-an-answer-are-gone", file: "queue/messages.go",
		old: "if errors.Is(err, ErrNotFound) {\n\t\t\t\tcontinue",
		new: "if err != nil {\n\t\t\t\tcontinue",
		by:  "./queue TestBodiesOfUnknownJobsAreAnError",
	},
	{
		name: "bodies-of-others-with-many", file: "queue/internal/jsapi/message.go",
		old: "read[i] = found",
		new: "read[i/2*2] = found",
		by:  "./queue TestBodiesAreReadTogether",
	},
	{
		name: "a-publishers-status-ends-a-batch", file: "queue/internal/jsapi/message.go",
		old: "			read = append(read, found)\n			continue",
		new: "			read = append(read, found)",
		by:  "./queue TestJobsThatLookLikeTheServersWordAreRead",
	},
	{
		name: "letters-of-a-key-by-reading-all", file: "queue/letters.go",
		old: "subject = l.b.names.Dead(l.policy, some.Key)",
		new: "",
		by:  "./queue TestLettersOfAKeyAreFoundAmongMany",
	},
	{
		name: "bodies-come-never-again", file: "queue/consumer.go",
		old: "config.HeadersOnly = bare",
		new: "",
		by:  "./queue TestALargeBacklogComesWithoutBodies",
	},
	{
		name: "bodies-for-ever", file: "queue/consumer.go",
		old: "state.Bytes/state.Msgs > leanBytes",
		new: "false",
		by:  "./queue TestLeanBacklog",
	},
	{
		name: "acks-not-repeated", file: "queue/acks.go",
		old: "again = append(again, a.enter([]uint64{seq}, now))",
		new: "a.enter([]uint64{seq}, now)",
		by:  "./queue TestAcknowledgementsAreRepeated",
	},
	{
		name: "acks-repeated-while-slow", file: "queue/acks.go",
		old: "(silent || g.at.Before(a.upTo))",
		new: "(silent || true)",
		by:  "./queue TestSlowConfirmationsAreAwaited",
	},
	{
		name: "close-does-not-wait", file: "queue/backlog.go",
		old: "l.acks.settle(ctx)",
		new: "",
		by:  "./queue TestCloseFlushesAcknowledgements",
	},
	{
		name: "close-after-a-break-sends-nothing", file: "queue/backlog.go",
		old: "l.acks.sendAll()",
		new: "",
		by:  "./queue TestABrokenBacklogSendsAllAcknowledgementsAtItsEnd",
	},
	{
		name: "group-confirmed-by-its-first-answer", file: "queue/acks.go",
		old: "if g.left--; g.left > 0 {",
		new: "if g.left--; false {",
		by:  "./queue TestAGroupIsConfirmedAsAWhole",
	},
	{
		name: "acks-sent-again-count-twice", file: "queue/acks.go",
		old: "		a.leave(g)\n		all = append(all, a.enter(g.seqs, now))",
		new: "		all = append(all, g)",
		by:  "./queue TestAnAcknowledgementSentAgainCountsOnce",
	},
	{
		name: "unconfirmed-not-counted", file: "queue/acks.go",
		old: "return len(a.waiting) + a.pending",
		new: "return len(a.waiting)",
		by:  "./queue TestABrokenBacklogSendsAllAcknowledgementsAtItsEnd",
	},
	{
		name: "late-beginning-of-a-consumer", file: "queue/copies.go",
		old: "consumer.Delivered.Stream >= stream.FirstSeq",
		new: "consumer.Delivered.Stream > stream.FirstSeq",
		by:  "./queue TestAConsumerThatBeginsLateIsKnown",
	},
	{
		name: "failed-openings-owe-nothing", file: "queue/backlog.go",
		old: "l.held = l.owed()",
		new: "l.held = 0",
		by:  "./queue TestAnOpeningThatFailsTellsTheNextWhatIsOwed",
	},
	{
		name: "former-consumer-asked-once", file: "queue/copies.go",
		old: "case err == nil || jsapi.HasCode(err, jsapi.CodeConsumerNotFound):",
		new: "case true:",
		by:  "./queue TestTheStateOfAFormerConsumerIsRetried",
	},
	{
		name: "lacking-leader-believed", file: "queue/copies.go",
		old: "for _, other := range cluster.Replicas {",
		new: "for _, other := range cluster.Replicas[:0] {",
		by:  "./queue TestJobsOutliveACopyThatLacksThem",
	},
	{
		name: "sweep-ends-by-the-first-pause", file: "queue/sweep.go",
		old: "if handed < l.last {",
		new: "if false {",
		by:  "./queue TestASweepEndsAfterAllThatWasStored",
	},
	{
		name: "sweep-of-other-partitions", file: "queue/internal/jsapi/message.go",
		old: `cmp.Or(filter, ">")`,
		new: `cmp.Or(">", filter)`,
		by:  "./queue TestASweepEndsAfterAllThatWasStored",
	},
	{
		name: "sweep-asks-for-what-came", file: "queue/sweep.go",
		old: "l.filter, handed+1)",
		new: "l.filter, handed)",
		by:  "./queue TestASweepEndsWithTheLastJobInAnotherPartition",
	},
	{
		name: "strays-after-the-sweep", file: "queue/backlog.go",
		old: `if !l.hand(astray) {
		return
	}
	signal`,
		new: "signal",
		by:  "./queue TestASweepEndsAfterTheStrays",
	},
	{
		name: "gone-jobs-come-after-the-sweep", file: "queue/sweep.go",
		old: "if a.Seq > l.last {",
		new: "{",
		by:  "./queue TestRemovedJobsDoNotComeAfterTheSweep",
	},
	{
		name: "doubtful-sweep-believed", file: "queue/sweep.go",
		old: "err = errUnswept // the",
		new: "err = ErrNotFound // the",
		by:  "./queue TestRemovedJobsDoNotComeAfterTheSweep",
	},
	{
		name: "strays-acknowledged", file: "queue/strays.go",
		old: "return s.known[seq]",
		new: "return false",
		by:  "./queue TestAFinishedStrayIsDeletedAndNotAcknowledged",
	},
	{
		name: "strays-never-gone", file: "queue/strays.go",
		old: "l.acks.gone(seq)",
		new: "_ = seq",
		by:  "./queue TestStraysAreBuriedOnTheirOwn",
	},

	// Records, ended jobs, repeats and letters.

	{
		name: "compare-and-set-forgets", file: "queue/kv/table.go",
		old: `if expected != nil {
		header`,
		new: `if false {
		header`,
		by: "./queue/kv TestTableCompareAndSet",
	},
	{
		name: "deleted-is-found", file: "queue/kv/table.go",
		old: "; err == nil && r.Deleted {",
		new: "; false {",
		by:  "./queue/kv TestTableCompareAndSet",
	},
	{
		name: "ended-of-another-stream", file: "queue/repeats.go",
		old: "if e.Accepted.Before(info.Created) {",
		new: "if _ = info.Created; false {",
		by:  "./queue TestARepeatGetsTheOutcomeOfItsJob",
	},
	{
		name: "dead-counts-as-done", file: "queue/repeats.go",
		old: "case e.How == job.EndDone:",
		new: "case e.How == job.EndDone, e.How == job.EndDead:",
		by:  "./queue TestARepeatGetsTheOutcomeOfItsJob",
	},
	{
		name: "replay-not-followed", file: "queue/repeats.go",
		old: `r.Seq, replays = e.Job, replays+1
				continue`,
		new: "return r, nil",
		by:  "./queue TestARepeatGetsTheOutcomeOfItsJob",
	},
	{
		name: "other-payload-is-a-repeat", file: "queue/repeats.go",
		old: `case e.Sum != "" && e.Sum != sum:`,
		new: "case false:",
		by:  "./queue TestAnotherPayloadIsNoRepeat",
	},
	{
		name: "other-payload-of-a-waiting-job", file: "queue/repeats.go",
		old: "if job.PayloadSum(stored.Header, stored.Body) != sum {",
		new: `if job.PayloadSum(stored.Header, stored.Body) == "" {`,
		by:  "./queue TestAnotherPayloadIsNoRepeat",
	},
	{
		name: "sum-without-the-method", file: "queue/job/end.go",
		old: "[]string{HeaderMethod, HeaderPath}",
		new: "[]string{HeaderPath}",
		by:  "./queue TestPayloadSumTellsPayloadsApart",
	},
	{
		name: "sum-runs-fields-together", file: "queue/job/end.go",
		old: "hash.Write(binary.AppendUvarint(nil, uint64(len(value))))",
		new: "_ = binary.AppendUvarint",
		by:  "./queue TestPayloadSumTellsPayloadsApart",
	},
	{
		name: "letter-without-its-end", file: "queue/deadletter.go",
		old: "return discarded, b.Results().Note(ctx, d.Policy, d.Seq, e)",
		new: `_ = e
			return discarded, nil`,
		by: "./queue TestTheEndOfAJobLeadsToItsLetter",
	},
	{
		name: "letter-of-another-stream-is-a-duplicate", file: "queue/deadletter.go",
		old: `d.Policy+"/"+seq+"/"+strconv.FormatInt(d.Stored.UnixNano(), 36)`,
		new: `d.Policy+"/"+seq`,
		by:  "./queue TestBury",
	},
	{
		name: "letters-discarded-unseen", file: "queue/deadletter.go",
		old: "if discarded += n; n == 0 {",
		new: "if n == 0 {",
		by:  "./queue TestLettersAreBounded",
	},
	{
		name: "letters-discarded-not-noted", file: "queue/deadletter.go",
		old: "metaNumber(info.Config.Metadata, metaDiscarded)+int64(n)",
		new: "metaNumber(info.Config.Metadata, metaDiscarded)",
		by:  "./queue TestLettersAreBounded",
	},
	{
		name: "duplicate-without-a-key", file: "queue/producer.go",
		old: `ack.Duplicate = ack.Duplicate && s.IdempotencyKey != ""`,
		new: "",
		by:  "./queue TestPublishIsRepeated",
	},
	{
		name: "no-room-after-unknown", file: "queue/producer.go",
		old: "if unknown && (errors.Is(translated, ErrStorage)",
		new: "if false && (errors.Is(translated, ErrStorage)",
		by:  "./queue TestNoRoomAfterAnUnknownAttempt",
	},
	{
		name: "idempotency-across-buckets", file: "queue/producer.go",
		old: `return string(k) + " " + idempotencyKey`,
		new: `return "k " + idempotencyKey`,
		by:  "./queue TestMessageID",
	},
	{
		name: "ids-that-run-together", file: "queue/producer.go",
		old: `return string(k) + " " + idempotencyKey`,
		new: `return string(k) + "/" + idempotencyKey`,
		by:  "./queue TestTwoTenantsNeverShareAMessageID",
	},
	{
		name: "forged-hash", file: "queue/producer.go",
		old: "&& !strings.HasPrefix(idempotencyKey, hashPrefix)",
		new: "",
		by:  "./queue TestTheHashOfAnIdempotencyKeyCannotBeForged",
	},
	{
		name: "workers-set-replicas", file: "queue/internal/jsapi/conn.go",
		old: "if c.Joins || have.Replicas",
		new: "if have.Replicas",
		by:  "./queue TestAProcessThatJoinsChangesNoStream",
	},
	{
		name: "roster-forgets-nobody", file: "queue/kv/roster.go",
		old: "latest.Sub(l.Stored) > r.lease",
		new: "l.Deleted",
		by:  "./queue/kv TestRosterGivesOthersTimeAfterItWasCutOff",
	},
	{
		name: "roster-believes-its-silence", file: "queue/kv/roster.go",
		old: "now.Sub(r.since) < r.lease",
		new: "false",
		by:  "./queue/kv TestRosterGivesOthersTimeAfterItWasCutOff",
	},
	{
		name: "outage-never-ends", file: "queue/outage.go",
		old: "delete(o.streams, policy)",
		new: "",
		by:  "./queue TestAKnownOutageOfJetStreamFailsFastAndOneProbeEndsIt",
	},

	// Questions.

	{
		name: "walk-goes-astray-when-an-item-goes", file: "workers/internal/walk/walk.go",
		old: "if hole < w.left {",
		new: "if false {",
		by:  "./workers/internal/walk TestAWalkVisitsEachItemOnce",
	},
	{
		name: "poison-lives-behind-a-breaker", file: "workers/internal/valve/breaker.go",
		old: "counts = v.othersAnswer(b)",
		new: "counts = false",
		by:  "./workers/internal/valve TestJobsThatAlwaysFailDieWhileOthersGetAnswers",
	},
	{
		name: "attempts-count-in-an-outage", file: "workers/internal/valve/breaker.go",
		old: "v.answered > b.target.last",
		new: "v.answered >= 0",
		by:  "./workers/internal/valve TestJobsThatAlwaysFailDieWhileOthersGetAnswers",
	},
	{
		name: "windows-wait-for-their-clock", file: "workers/internal/quota/quota.go",
		old: "		of.clamp(st, asked.of(of))\n",
		new: "",
		by:  "./workers/internal/valve TestWindowsFollowAClockThatIsSet",
	},
	{
		name: "limits-sleep-when-their-clock-is-set", file: "workers/internal/valve/valve.go",
		old: "	v.againWithin(now)\n",
		new: "",
		by:  "./workers/internal/valve TestWindowsFollowAClockThatIsSet",
	},
	{
		name: "limits-with-costs-not-foretold", file: "workers/internal/valve/forecast.go",
		old: "	at = max(at, v.limited(b, slots, others, calls, c, now))\n",
		new: "	_ = c\n",
		by:  "./workers/internal/valve TestForecastsCountLimitsWithCosts",
	},
	{
		name: "owed-not-foretold", file: "workers/internal/quota/after.go",
		old: "need: st.owed + units + own",
		new: "need: units + own",
		by:  "./workers/internal/valve TestForecastsCountDebtBeyondAWindow",
	},
	{
		name: "charge-lost-with-a-limit", file: "workers/internal/quota/quota.go",
		old: "			of = ch.of[from]\n",
		new: "			of = notCharged\n",
		by:  "./workers/internal/valve TestARunIsSettledOverAChangeOfLimits",
	},
	{
		name: "forecast-sums-nothing", file: "workers/internal/valve/forecast.go",
		old: "f.fixed[i] += f.fixed[i-1]",
		new: "f.fixed[i] += 0",
		by:  "./workers/internal/valve TestAForecastIsNearAWalk",
	},
	{
		name: "forecast-of-endless-buckets", file: "workers/internal/valve/forecast.go",
		old: "f.line(last, last*weight, -weight)",
		new: "_ = last",
		by:  "./workers/internal/valve TestAForecastIsNearAWalk",
	},
	{
		name: "forecast-counts-the-asking-bucket", file: "workers/internal/valve/forecast.go",
		old: "before -= min(",
		new: "before -= 0 * min(",
		by:  "./workers/internal/valve TestAForecastCountsTheAskingBucketOnce",
	},
	{
		name: "deaf-caller-is-offered-again", file: "workers/internal/claimant/claimant.go",
		old: "Offered: {Ask: Waiting, Claim: Claiming, Silence: Ended,",
		new: "Offered: {Ask: Waiting, Claim: Claiming, Silence: Waiting,",
		by:  "./workers/internal/valve TestASilentClaimantCostsItsWindow",
	},
	{
		name: "silent-caller-waits-on", file: "workers/internal/claimant/claimant.go",
		old: "Offer: Offered, Silence: Ended,",
		new: "Offer: Offered, Silence: Offered,",
		by:  "./workers/internal/valve TestAWaitingCallerThatAsksNoMoreHasGone",
	},
	{
		name: "claim-that-ran-out-ends", file: "workers/internal/claimant/claimant.go",
		old: "Silence: Waiting, Start: Granted,",
		new: "Silence: Ended, Start: Granted,",
		by:  "./workers/internal/valve TestAClaimThatRanOutIsOfferedAgain",
	},
	{
		name: "offer-is-not-claimed", file: "workers/internal/claimant/claimant.go",
		old: "Offered: {Ask: Waiting, Claim: Claiming,",
		new: "Offered: {Ask: Waiting, Claim: Offered,",
		by:  "./workers/internal/valve TestACallIsOfferedItsTurnAndClaimsIt",
	},
	{
		name: "start-stays-a-claim", file: "workers/internal/claimant/claimant.go",
		old: "Start: Granted,",
		new: "Start: Claiming,",
		by:  "./workers/internal/valve TestACallIsOfferedItsTurnAndClaimsIt",
	},
	{
		name: "start-that-came-back-ends", file: "workers/internal/claimant/claimant.go",
		old: "Return: Waiting,",
		new: "Return: Ended,",
		by:  "./workers/internal/valve TestACallThatFailsItsFinalCheckWaitsOn",
	},
	{
		name: "start-that-passed-is-forgotten", file: "workers/internal/claimant/claimant.go",
		old: "Pass: Running,",
		new: "Pass: Granted,",
		by:  "./workers/internal/valve TestALeaseHoldsAPlaceUntilItIsSettledOrLost",
	},
	{
		name: "progress-renews-nothing", file: "workers/internal/claimant/claimant.go",
		old: "Running: {Progress: Running,",
		new: "Running: {Progress: Unknown,",
		by:  "./workers/internal/valve TestALeaseHoldsAPlaceUntilItIsSettledOrLost",
	},
	{
		name: "answer-renews-nothing", file: "workers/internal/claimant/claimant.go",
		old: "Running: {Progress: Running, Answered: Running,",
		new: "Running: {Progress: Running,",
		by:  "./workers/internal/valve TestAClaimantIsBelieved",
	},
	{
		name: "lease-never-ends", file: "workers/internal/claimant/claimant.go",
		old: "Answered: Running, Silence: Ended, Settle: Ended,",
		new: "Answered: Running, Silence: Waiting, Settle: Ended,",
		by:  "./workers/internal/valve TestALeaseHoldsAPlaceUntilItIsSettledOrLost",
	},
	{
		name: "running-call-elsewhere-is-unknown", file: "workers/internal/claimant/claimant.go",
		old: "Claim: Claiming, Progress: Running, Answered",
		new: "Claim: Claiming, Answered",
		by:  "./workers/internal/valve TestALeaseHoldsAPlaceUntilItIsSettledOrLost",
	},
	{
		name: "withdrawn-call-stays", file: "workers/internal/claimant/claimant.go",
		old: "Waiting: {Ask: Waiting, Offer: Offered, Silence: Ended, Settle: Ended,",
		new: "Waiting: {Ask: Waiting, Offer: Offered, Silence: Ended,",
		by:  "./workers/internal/valve TestAWithdrawnCallLeavesItsTurnToTheNext",
	},
	{
		name: "lost-partition-keeps-its-callers", file: "workers/internal/claimant/claimant.go",
		old: "Silence: Ended, Settle: Ended, Leave: Ended},\n\tOffered",
		new: "Silence: Ended, Settle: Ended},\n\tOffered",
		by:  "./workers/internal/valve TestRefusalsOfCalls",
	},
	{
		name: "worker-waits-in-the-valve", file: "workers/internal/claimant/claimant.go",
		old: "case is == Waiting && k.Worker != \"\":",
		new: "case false:",
		by:  "./workers/internal/claimant TestTransitions",
	},
	{
		name: "late-copy-of-a-claim-starts", file: "workers/internal/valve/calls.go",
		old: "case j == nil && p.ended.Has(c.ID): // a late copy",
		new: "case false:",
		by:  "./workers/internal/valve TestALateCopyOfAClaimTakesNoStart",
	},
	{
		name: "late-progress-takes-a-place", file: "workers/internal/valve/calls.go",
		old: " && !p.ended.Has(c.ID) {",
		new: " {",
		by:  "./workers/internal/valve TestALateCopyOfAClaimTakesNoStart",
	},
	{
		name: "ended-calls-not-handed-over", file: "workers/internal/valve/handover.go",
		old: "h.Ended = p.ended.Last()",
		new: "",
		by:  "./workers/internal/valve TestAReportRepeatedToTheNextOwnerCountsOnce",
	},
	{
		name: "ended-calls-not-inherited", file: "workers/internal/valve/inherit.go",
		old: "p.ended.Inherit(in.Handover.Ended, now)",
		new: "p.ended.Inherit(nil, now)",
		by:  "./workers/internal/core TestSimulationOfCalls",
	},
	{
		name: "ended-calls-kept-for-ever", file: "workers/internal/claimant/ended.go",
		old: "n.order[0].at < now.Add(-endedFor)",
		new: "false",
		by:  "./workers/internal/claimant TestTheLastIdsAreKnown",
	},
	{
		name: "ended-calls-before-running-jobs", file: "workers/internal/record/fit.go",
		old: "h.Ended, _ = packed(slices.Sorted(slices.Values(h.Ended))).within(most - size)",
		new: "",
		by:  "./workers/internal/valve TestEndedCallsAreDroppedFirst",
	},
	{
		name: "taking-forgets-ended-calls", file: "workers/internal/core/ownership.go",
		old: "r.Edits, r.Ended = b.Edits, b.Ended",
		new: "r.Edits = b.Edits",
		by:  "./workers/internal/core TestATakingRepeatsWhatItsRecordTold",
	},
	{
		name: "repeated-report-counts-again", file: "workers/internal/valve/calls.go",
		old: "if p.ended.Has(c.ID) {",
		new: "if false {",
		by:  "./workers/internal/valve TestARepeatedReportCountsOnce",
	},
	{
		name: "lost-lease-gives-back", file: "workers/internal/valve/claims.go",
		old: "o.Kind = record.OutcomeUncounted\n",
		new: "o = v.unused(j, now)\n",
		by:  "./workers/internal/valve TestALostLeaseKeepsItsCharge",
	},
	{
		name: "older-question-gives-back", file: "workers/internal/valve/calls.go",
		old: "case c.N <= j.call.N:",
		new: "case c.N < 0:",
		by:  "./workers/internal/valve TestALostLeaseKeepsItsCharge",
	},
	{
		name: "an-earlier-claim-is-answered", file: "queue/claims/claims.go",
		old: "return t.Number == k.n",
		new: "return true",
		by:  "./queue/claims TestOnlyTheLatestClaimCounts",
	},
	{
		name: "a-report-is-sent-once", file: "queue/claims/claims.go",
		old: "again.Reset(Patience)",
		new: "again.Stop()",
		by:  "./queue/claims TestAReportIsRepeatedUntilItIsAnswered",
	},
	{
		name: "a-key-has-a-bucket-in-each-partition", file: "queue/valve.go",
		old: "job.Partition(b.names.Jobs(policy, c.Key), c.Partitions) == partition)",
		new: "true)",
		by:  ". TestQuestionsOfCallersAreAnsweredWhateverTheySay",
	},
	{
		name: "callers-speak-too-early", file: "workers/internal/valve/calls.go",
		old: "if c := k.Report; c != nil {",
		new: "if c := k.Report; false && c != nil {",
		by:  "./workers/internal/valve TestACallerSpeaksBeforeItsFinalCheckIsKnown",
	},
	{
		name: "calls-starve-jobs", file: "workers/internal/valve/claims.go",
		old: "c.inRow >= c.perJob",
		new: "c.inRow < 0",
		by:  "./workers/internal/valve TestCallsGoBeforeJobsAndLeaveThemEveryTenthStart",
	},
	{
		name: "proxy-sends-our-credential-on", file: "admission/outbound/outbound.go",
		old: "withoutOurs(r.Out.Header)",
		new: "",
		by:  "./admission/outbound TestHeadersAndBytesPassUnchanged",
	},
	{
		name: "proxy-forgets-how-often-a-request-failed", file: "admission/outbound/outbound.go",
		old: "priority+min(n, job.MaxPriority)",
		new: "priority+min(n, 1)",
		by:  "./admission/outbound TestARetryGoesBeforeCallsThatFailedLessOften",
	},
	{
		name: "proxy-keeps-unused-starts", file: "admission/outbound/send.go",
		old: "result := permits.Result{Status: permits.Unreached",
		new: "result := permits.Result{Status: permits.Unavailable",
		by:  "./admission/outbound TestAStartThatNeverReachedTheUpstreamIsGivenBack",
	},
	{
		name: "proxy-waits-for-callers-that-went", file: "admission/outbound/send.go",
		old: "context.WithCancel(out.Context())",
		new: "context.WithCancel(context.WithoutCancel(out.Context()))",
		by:  "./admission/outbound TestACallerThatGoesWithdrawsItsWait",
	},
	{
		name: "proxy-passes-any-status-on", file: "admission/outbound/send.go",
		old: "if err == nil && !passable(request, response) {",
		new: "if false {",
		by:  "./admission/outbound TestAnswersThatCannotBePassedOn",
	},
	{
		name: "proxy-waits-for-upstreams-that-do-not-read", file: "admission/outbound/send.go",
		old: "exchange.GotConn(i)\n\t\t\ttimer.Reset(c.route.Timeout)",
		new: "exchange.GotConn(i)",
		by:  "./admission/outbound TestAnUpstreamThatDoesNotReadIsGivenUp",
	},
	{
		name: "aborted-calls-free-their-places-at-once", file: "internal/oneshot/exchange.go",
		old: "\t\te.Wait()\n\t\tf()",
		new: "\t\tf()",
		by:  "./admission/outbound TestAnAbortedCallKeepsItsPlace",
	},
	{
		name: "closed-connections-are-over", file: "internal/oneshot/exchange.go",
		old: "\tgo c.drain()",
		new: "\tc.noticed = c.TCPConn.Close() == nil\n\tclose(c.ended)",
		by:  "./admission/outbound TestAnAbortedCallKeepsItsPlace",
	},
	{
		name: "targets-that-notice-nothing-have-ended", file: "internal/oneshot/exchange.go",
		old: "err != nil && !errors.Is(err, os.ErrDeadlineExceeded)",
		new: "errors.Is(err, os.ErrDeadlineExceeded) || err != nil",
		by:  "./admission/outbound TestAnAbortedCallKeepsItsPlace",
	},
	{
		name: "streams-of-http2-have-ended-when-reset", file: "internal/oneshot/exchange.go",
		old: "\ttime.Sleep(Notice)",
		new: "",
		by:  "./admission/outbound TestAnAbortedCallKeepsItsPlace",
	},
	{
		name: "proxy-settles-parts-of-answers-at-once", file: "admission/outbound/send.go",
		old: "\t\tif whole {\n\t\t\ts.permit.Settle",
		new: "\t\tif true {\n\t\t\ts.permit.Settle",
		by:  "./admission/outbound TestAnAbortedCallKeepsItsPlace",
	},
	{
		name: "proxy-settles-calls-without-an-answer-at-once", file: "admission/outbound/send.go",
		old: "exchange.After(func() { permit.Settle(result) })",
		new: "permit.Settle(result)",
		by:  "./admission/outbound TestAnAbortedCallKeepsItsPlace",
	},
	{
		name: "transport-settles-parts-of-answers-at-once", file: "admission/permits/transport.go",
		old: "if read.whole.Load() || result.Status == Throttled {\n\t\t\tpermit",
		new: "if true {\n\t\t\tpermit",
		by:  ". TestACallEndsWhenTheTargetHasEndedIt",
	},
	{
		name: "jobs-that-time-out-end-at-once", file: "workers/httptarget/httptarget.go",
		old: "if !whole {",
		new: "if false && whole {",
		by:  "./workers/httptarget TestAJobThatTimesOutEndsWhenTheTargetHasEndedIt",
	},
	{
		name: "aborted-requests-stay-in-the-kernel", file: "internal/oneshot/exchange.go",
		old: "_ = of.SetLinger(0)",
		new: "_ = of",
		by:  "./internal/oneshot TestAnAbortedRequestDoesNotArriveLater",
	},
	{
		name: "requests-outlive-their-process", file: "internal/oneshot/exchange.go",
		old: "recallable(i.Conn, e.MaxDelay)",
		new: "_ = recallable",
		by:  "./internal/oneshot TestARequestDiesWithItsProcess",
	},
	{
		name: "kernels-never-give-requests-up", file: "internal/oneshot/exchange.go",
		old: "limitUnacknowledged(of, within)",
		new: "_ = within",
		by:  "./internal/oneshot TestTheKernelGivesARequestUp",
	},
	{
		name: "clients-without-hooks-send-nothing", file: "internal/oneshot/exchange.go",
		old: "e.asked.Load() && e.conn.Load() == nil",
		new: "e.conn.Load() == nil",
		by:  "./workers/httptarget TestOutcomesSayWhetherTheTargetHasAnswered",
	},
	{
		name: "gateways-answer-for-their-targets", file: "workers/httptarget/httptarget.go",
		old: "err == nil && !answers.Gateways(response.StatusCode)",
		new: "err == nil",
		by:  "./workers/httptarget TestOutcomesSayWhetherTheTargetHasAnswered",
	},
	{
		name: "failed-requests-were-not-sent", file: "workers/httptarget/httptarget.go",
		old: "case !exchange.Unsent() &&",
		new: "case false &&",
		by:  "./workers/httptarget TestOutcomesSayWhetherTheTargetHasAnswered",
	},
	{
		name: "an-early-hint-is-an-answer", file: "workers/httptarget/httptarget.go",
		old: "&httptrace.ClientTrace{GetConn: exchange.GetConn,",
		new: "&httptrace.ClientTrace{GotFirstResponseByte: j.Answered, GetConn: exchange.GetConn,",
		by:  "./workers/httptarget TestOutcomesSayWhetherTheTargetHasAnswered",
	},
	{
		name: "nobody-got-a-request", file: "workers/natstarget/natstarget.go",
		old: "\t\tj.Unsent()\n\t\treturn workers.RetryAfter(absent",
		new: "\t\treturn workers.RetryAfter(absent",
		by:  "./workers/natstarget TestOutcomesSayWhetherTheServiceHasReplied",
	},
	{
		name: "replies-are-no-answers", file: "workers/natstarget/natstarget.go",
		old: "j.Answered() //",
		new: "//",
		by:  "./workers/natstarget TestOutcomesSayWhetherTheServiceHasReplied",
	},
	{
		name: "transport-reports-no-answers", file: "admission/permits/transport.go",
		old: "\t\tpermit.Answered()",
		new: "",
		by:  ". TestTransportReportsAnswers",
	},
	{
		name: "transport-answers-for-gateways", file: "admission/permits/transport.go",
		old: "if !answers.Gateways(a.StatusCode) {",
		new: "if true {",
		by:  ". TestTransportReportsAnswers",
	},
	{
		name: "ends-forget-gateways", file: "admission/permits/transport.go",
		old: "Unanswered: answers.Gateways(status)}",
		new: "}",
		by:  ". TestSettlementsOverHTTPSayWhetherThereWasAnAnswer",
	},
	{
		name: "transport-sends-what-it-could-not", file: "admission/permits/transport.go",
		old: "case unsent:",
		new: "case false:",
		by:  ". TestTransportReportsAnswers",
	},
	{
		name: "answers-are-reported-unasked", file: "admission/permits/permit.go",
		old: "if p.MaxDelay > 0 && !p.answered.Swap(true) {",
		new: "if !p.answered.Swap(true) {",
		by:  ". TestTransportReportsAnswers",
	},
	{
		name: "ends-forget-answers", file: "admission/permits/permit.go",
		old: "case p.answered.Load():",
		new: "case false:",
		by:  ". TestClientsReportAnswers",
	},
	{
		name: "starts-do-not-ask-for-answers", file: "workers/internal/valve/calls.go",
		old: "maxDelayMS: ceilMillis(time.Duration(v.Policy.MaxDelay))}",
		new: "}",
		by:  ". TestTransportReportsAnswers",
	},
	{
		name: "unanswered-calls-pause-late", file: "workers/internal/valve/calls.go",
		old: "\tv.coolDown(j.Bucket, o.RetryAfter, ended)\n",
		new: "",
		by:  "./workers/internal/valve TestAPauseOfACallWithoutAnAnswerBeginsAtOnce",
	},
	{
		name: "unanswered-calls-pause-twice", file: "workers/internal/valve/calls.go",
		old: "o.RetryAfter -= min(o.RetryAfter, delay)",
		new: "",
		by:  "./workers/internal/valve TestAPauseOfACallWithoutAnAnswerBeginsAtOnce",
	},
	{
		name: "proxy-reports-no-answers", file: "admission/outbound/send.go",
		old: "\t\t\tpermit.Answered()",
		new: "",
		by:  "./admission/outbound TestTheProxyReportsAnswers",
	},
	{
		name: "answers-elsewhere-are-not-heard", file: "workers/remote.go",
		old: "err == nil && c.Op == job.OpAnswered",
		new: "false && c.Op == job.OpAnswered",
		by:  "./workers TestAHandlersAnswerCounts",
	},
	{
		name: "workers-elsewhere-report-no-answers", file: "workers/lender.go",
		old: "_ = k.Send(to, job.Claim{Op: job.OpAnswered})",
		new: "_ = job.OpAnswered",
		by:  "./workers TestAHandlersAnswerCounts",
	},
	{
		name: "workers-report-answers-unasked", file: "workers/lender.go",
		old: "if j.settled.maxDelay > 0 {",
		new: "if true {",
		by:  "./workers TestAWorkerReportsAnAnswerIfAsked",
	},
	{
		name: "failures-were-answered", file: "workers/internal/record/outcome.go",
		old: "k == OutcomeFailed || k == OutcomeUncounted",
		new: "k == OutcomeFailed && false",
		by:  "./workers TestTheEndOfARunSaysWhetherItWasAnswered",
	},
	{
		name: "an-answer-is-forgotten-at-the-end", file: "workers/handler.go",
		old: "nil; s.answered {",
		new: "nil; false {",
		by:  "./workers TestTheEndOfARunSaysWhetherItWasAnswered",
	},
	{
		name: "answers-are-reported-after-the-end", file: "workers/handler.go",
		old: "cmp.Or(s.missed, by), nil; s.answered",
		new: "cmp.Or(s.missed, by), s.answer; s.answered",
		by:  "./workers TestAnAnswerIsReportedOnceAndBeforeTheEnd",
	},
	{
		name: "aborted-connections-stay-open", file: "internal/oneshot/exchange.go",
		old: "_ = c.SetReadDeadline(time.Now().Add(Notice))",
		new: "_ = c.SetReadDeadline(time.Time{})",
		by:  "./internal/oneshot TestATargetThatNoticesNothingIsLeft",
	},
	{
		name: "reads-outlive-their-connection", file: "internal/oneshot/exchange.go",
		old: "_ = c.SetDeadline(time.Now())",
		new: "_ = time.Now()",
		by:  "./internal/oneshot TestATargetThatNoticesNothingIsLeft",
	},
	{
		name: "transport-settles-failed-calls-at-once", file: "admission/permits/transport.go",
		old: "exchange.After(func() { permit.Settle(result) })\n\t\treturn nil, err",
		new: "permit.Settle(result)\n\t\treturn nil, err",
		by:  ". TestACallEndsWhenTheTargetHasEndedIt",
	},
	{
		name: "proxy-blames-upstreams-for-pauses-of-callers", file: "admission/outbound/send.go",
		old: "u.timer.Stop()",
		new: "",
		by:  "./admission/outbound TestAnUpstreamThatDoesNotReadIsGivenUp",
	},
	{
		name: "proxy-blames-upstreams-for-broken-bodies", file: "admission/outbound/send.go",
		old: "case errors.Is(err, errBody):",
		new: "case false:",
		by:  "./admission/outbound TestABodyThatBreaksIsNotTheUpstreamsFault",
	},
	{
		name: "a-part-of-an-answer-passes-for-the-whole", file: "workers/httptarget/httptarget.go",
		old: "if broken == nil && (j.Awaited() || j.Kept()) {",
		new: "if _ = broken; j.Awaited() || j.Kept() {",
		by:  ". TestAWaitReturnsTheTargetsAnswer",
	},
	{
		name: "a-silent-connection-is-kept", file: "workers/httptarget/httptarget.go",
		old: "HTTP2: &http.HTTP2Config{SendPingTimeout: mostSilence},",
		new: "",
		by:  "./workers/httptarget TestASilentConnectionIsGivenUp",
	},
	{
		name: "a-new-owner-keeps-purged-jobs", file: "admission/manage/buckets.go",
		old: "continue // an owner that came meanwhile may have read them",
		new: "return removed, false, nil",
		by:  "./admission/manage TestAnOwnerThatComesMeanwhileDropsItsCopies",
	},
	{
		name: "a-target-that-ends-its-connection-is-down",
		file: "workers/httptarget/httptarget.go",
		old:  "if used && oneshot.Leaving(err) {",
		new:  "if used && false {",
		by:   "./workers/httptarget TestATargetThatEndsItsConnectionIsNotDown",
	},
	{
		name: "an-upstream-that-ends-its-connection-is-down",
		file: "admission/outbound/send.go",
		old:  "untouched := oneshot.Leaving(err) || files.Short(err)",
		new:  "untouched := files.Short(err)",
		by:   "./admission/outbound TestAnUpstreamThatEndsItsConnectionIsAskedAgain",
	},
	{
		name: "a-101-holds-a-worker", file: "workers/httptarget/httptarget.go",
		old: "if err == nil && response.StatusCode == http.StatusSwitchingProtocols {",
		new: "if false {",
		by:  "./workers/httptarget TestATargetThatSwitchesProtocolsHoldsNoWorker",
	},
	{
		name: "proxy-resends-inside", file: "admission/outbound/send.go",
		old: "oneshot.SetBody(request, c.body)",
		new: "request.GetBody = func() (io.ReadCloser, error) {\n" +
			"return io.NopCloser(bytes.NewReader(c.body)), nil\n}\n" +
			"request.Body, _ = request.GetBody()\n_ = oneshot.SetBody",
		by: "./admission/outbound TestAStartIsOneRequest",
	},
	{
		name: "proxy-pauses-when-a-stream-ends", file: "admission/outbound/send.go",
		old: "permit.Pause(result.RetryAfter)",
		new: "defer permit.Pause(0)",
		by:  "./admission/outbound TestErrorsPassAndUsedUpLimitsPause",
	},
	{
		name: "expected-through-a-breaker", file: "workers/internal/valve/forecast.go",
		old: "|| v.breaker.open || b.down() {",
		new: "|| b.down() {",
		by:  "./workers/internal/valve TestNoForecastWhileABreakerIsOpen",
	},
	{
		name: "expected-through-a-buckets-breaker", file: "workers/internal/valve/forecast.go",
		old: "|| v.breaker.open || b.down() {",
		new: "|| v.breaker.open {",
		by:  "./workers/internal/valve TestNoForecastWhileABreakerIsOpen",
	},
	{
		name: "position-counts-jobs-not-slots", file: "workers/internal/valve/forecast.go",
		old: "pace.Times(slots+others, v.turnEvery())",
		new: "pace.Times(others, v.total.Interval)",
		by:  "./workers/internal/valve TestExpectedStartsUnderATotalCountSlots",
	},
	{
		name: "room-at-once", file: "workers/internal/valve/forecast.go",
		old: "wait = max(wait, h.until.Since(now))",
		new: "_ = h",
		by:  "./workers/internal/valve TestRoom",
	},
	{
		name: "expected-starts-wait-for-workers", file: "workers/internal/valve/questions.go",
		old: "wait, known := q.part.expect(seq, now)",
		new: "wait, known := q.part.expect(seq, now)\n\t\tif !known && now < q.until {\n" +
			"\t\t\treturn waits\n\t\t}",
		by: "./workers/internal/valve TestAnUnknownStartIsAnsweredAtOnce",
	},
	{
		name: "expected-starts-do-not-wait-for-jobs", file: "workers/internal/valve/questions.go",
		old: "q.newest > q.part.highest && q.part.state == partitionLive",
		new: "false",
		by:  "./workers/internal/valve TestAnAnswerWaitsForAJobThatHasNotArrived",
	},
	{
		name: "an-unknown-start-has-no-position", file: "admission/expect.go",
		old: "for _, s := range answer.Starts {",
		new: "for _, s := range answer.Starts {\n\t\tif !s.Known {\n\t\t\tcontinue\n\t\t}",
		by:  "./admission TestSubmitVerdicts",
	},
	{
		name: "partitions-by-the-default-of-now", file: "policy/change.go",
		old: "p.Partitions = cmp.Or(p.Partitions, before.Partitions)",
		new: "p.Partitions = cmp.Or(p.Partitions, before.Partitions*0)",
		by:  "./policy/store TestAPolicyThatNamesNoPartitionsKeepsItsOwn",
	},
	{
		name: "a-batch-is-stored-in-any-order", file: "admission/batch.go",
		old: "wait = s.send(ctx, &r, s.stored)",
		new: "later := make(chan sent, 1)\n\t\t\t\tgo func() {\n\t\t\t\t\t" +
			"later <- s.send(ctx, &r, s.stored)\n\t\t\t\t}()\n\t\t\t\t" +
			"wait = func() (Outcome, error) { return (<-later)() }",
		by: "./admission TestABatchIsStoredInItsOrder",
	},
	{
		name: "a-batch-asks-valves", file: "admission/batch.go",
		old: "wait = s.send(ctx, &r, s.stored)",
		new: "wait = s.send(ctx, &r, s.foretold)",
		by:  "./admission TestABatchAsksNoValve",
	},
	{
		name: "a-batch-believes-any-client", file: "admission/httpapi/batch.go",
		old: "h.client(r.RemoteAddr, header)",
		new: "h.client(r.RemoteAddr, nil)",
		by:  "./admission/httpapi TestALineThatCannotBeReadIsRefusedAlone",
	},
	{
		name: "a-batch-takes-any-name-of-a-header", file: "admission/httpapi/batch.go",
		old: "if !token(name) {",
		new: "if !token(name) && false {",
		by:  "./admission/httpapi TestALineThatCannotBeReadIsRefusedAlone",
	},
	{
		name: "a-batch-keeps-its-bytes", file: "admission/httpapi/batch.go",
		old: "\t\tdefer release()",
		new: "",
		by:  "./admission/httpapi TestABatchGivesItsBytesBack",
	},
	{
		name: "a-batch-takes-any-number", file: "admission/httpapi/batch.go",
		old: "n > admission.MaxBatch {",
		new: "n > 2*admission.MaxBatch {",
		by:  "./admission/httpapi TestTheSizeOfABatchIsBounded",
	},
	// Limits on starts.

	{
		name: "crash-charges-no-limit", file: "workers/internal/valve/startlimits.go",
		old: "listed = in.within(listed, told.Budget, told.Cost)",
		new: "listed = 0",
		by:  "./workers/internal/core TestSimulationOfLimits",
	},
	{
		name: "late-for-its-limits", file: "workers/internal/valve/startlimits.go",
		old: "t.latest = min(t.latest, now.Later(l.Lag(used)))",
		new: "_ = t.latest",
		by:  "./workers/internal/valve TestAStartThatIsLateForItsLimitsGoesBack",
	},
	{
		name: "limits-without-checkpoints", file: "workers/internal/valve/startlimits.go",
		old: "u.noted.Stored > 0 && u.gap(now) <= mostUnnoted",
		new: "u.noted.Stored > 0",
		by:  "./workers/internal/valve TestNothingStartsUnderLimitsForLongWithoutACheckpoint",
	},
	{
		name: "what-a-limit-counts-is-forgotten", file: "workers/internal/valve/schedule.go",
		old: "b.used != nil && b.fresh <= now {",
		new: "b.used != nil && b.fresh == 0 {",
		by:  "./workers/internal/valve TestABucketIsForgottenOnceItsLimitsCountNothing",
	},
	{
		name: "guard-of-limits-ignored", file: "workers/internal/quota/quota.go",
		old: "asked.own.Add(l.guard + l.late(s))",
		new: "asked.own.Add(l.late(s))",
		by:  "./workers/internal/quota TestNoLimitIsEverBroken",
	},
	{
		name: "windows-know-the-time-exactly", file: "workers/internal/quota/quota.go",
		old: "return min(now.Off, l.mostOff)",
		new: "return min(now.Off, l.mostOff, 0)",
		by:  "./workers/internal/quota TestNoLimitIsEverBroken",
	},
	{
		name: "crash-in-the-window-of-the-earliest", file: "workers/internal/quota/quota.go",
		old: "	asked.wall = asked.wall.Add(2 * l.off(to))",
		new: "	asked.wall = asked.wall.Add(0 * l.off(to))",
		by:  "./workers/internal/quota TestACrashCountsByTheLatestPossibleClock",
	},
	{
		name: "crash-charges-a-young-record", file: "algorithms/slidinglog.go",
		old: "min(u.Slack, l.Window)",
		new: "0*min(u.Slack, l.Window)",
		by:  "./workers/internal/quota TestNoLimitIsEverBroken",
	},
	{
		name: "known-clock-does-not-grow-old", file: "workers/internal/core/lease.go",
		old: "float64(within.Abs()) * clockDrift",
		new: "float64(within.Abs()) * 0",
		by:  "./workers/internal/core TestAClockThatDriftsStaysKnown",
	},

	{
		name: "crash-charges-no-limit-of-all", file: "workers/internal/valve/together.go",
		old: "case !in.Crashed:",
		new: "default:",
		by:  "./workers/internal/valve TestALimitForAllKeysIsHandedOverAndChargedByACrash",
	},
	{
		name: "crash-forgets-some-of-a-day", file: "workers/internal/valve/together.go",
		old: "most[cost] = in.within(most[cost], told.AllBudget, told.Cost)",
		new: "most[cost] = 0 * told.AllBudget",
		by:  "./workers/internal/core TestACrashDoesNotForgetTheDay",
	},
	{
		name: "crash-ends-the-day", file: "workers/internal/valve/together.go",
		old: "if v.total.Pace != nil && h.Total ==",
		new: "if false && h.Total ==",
		by:  "./workers/internal/core TestACrashDoesNotForgetTheDay",
	},
	{
		name: "budget-of-a-bucket-is-not-kept", file: "workers/internal/valve/startlimits.go",
		old: "p.spent(v.quota, b.used, p.unnoted.told.each)",
		new: "p.spent(v.quota, nil, p.unnoted.told.each)",
		by:  "./workers/internal/core TestACrashDoesNotForgetTheDay",
	},
	{
		name: "budget-of-all-is-not-kept", file: "workers/internal/valve/gates.go",
		old: "h.until <= now && v.spent() {",
		new: "false {",
		by:  "./workers/internal/core TestACrashDoesNotForgetTheDay",
	},
	{
		name: "budget-is-not-told", file: "workers/internal/valve/startlimits.go",
		old: "			h.ByCost[cost] = told\n",
		new: "			_ = told\n",
		by:  "./workers/internal/core TestACrashDoesNotForgetTheDay",
	},
	{
		name: "budget-that-no-record-tells-is-used", file: "workers/internal/quota/budget.go",
		old: "budget := least(of.budget, told[of.cost])",
		new: "budget := of.budget",
		by:  "./workers/internal/valve TestABudgetIsAlsoTheRecords",
	},
	{
		name: "budget-that-may-be-stored", file: "workers/internal/valve/startlimits.go",
		old: "u.told.each = quota.Least(u.told.each, u.telling.each)",
		new: "",
		by:  "./workers/internal/valve TestABudgetIsAlsoTheRecords",
	},
	{
		name: "budget-of-what-runs-used-is-not-kept", file: "workers/internal/quota/quota.go",
		old: "		s.states[i].untold.add(more, noted)\n",
		new: "",
		by:  "./workers/internal/valve TestDebtIsInTheBudget",
	},
	{
		name: "crash-before-a-checkpoint-ends-the-day", file: "workers/internal/core/takeover.go",
		old: "in.Unstarted = found.Revision == 0 &&",
		new: "in.Unstarted = false &&",
		by:  "./workers/internal/core TestACrashBeforeTheFirstCheckpoint",
	},
	{
		name: "starts-before-the-first-checkpoint", file: "workers/internal/valve/startlimits.go",
		old: "u.noted.Stored > 0 && u.gap",
		new: "u.gap",
		by:  "./workers/internal/valve TestNothingStartsUnderLimitsBeforeTheFirstCheckpoint",
	},
	{
		name: "costs-of-jobs-are-not-told", file: "workers/internal/valve/startlimits.go",
		old: "			known = u.knows(cost, c) && known\n",
		new: "",
		by:  "./workers/internal/valve TestAJobMayCostMoreThanABudget",
	},
	{
		name: "budget-begins-anew-unstored", file: "workers/internal/quota/budget.go",
		old: "*u = untold{before: u.units(n), begun: n.Begun}",
		new: "*u = untold{begun: n.Begun}",
		by:  "./workers/internal/valve TestABudgetIsAlsoTheRecords",
	},
	{
		name: "limit-of-all-by-bucket", file: "workers/internal/valve/startlimits.go",
		old: "h.AllLimits, h.Together = t.Names(), t.Encode(t.used, p.v.instant(now))",
		new: "h.AllLimits = t.Names()",
		by:  "./workers/internal/valve TestALimitForAllKeysIsHandedOverAndChargedByACrash",
	},
	{
		name: "turns-not-charged-under-limits", file: "workers/internal/valve/together.go",
		old: "\tb.turns = v.turns + float64(cost)/float64(b.weight)\n",
		new: "\tif v.total.Pace != nil {\n\t\tb.turns = v.turns + " +
			"float64(cost)/float64(b.weight)\n\t}\n",
		by: "./workers/internal/core TestSimulationOfTurnsUnderLimits",
	},
	{
		name: "who-lets-others-pass-begins-anew", file: "workers/internal/valve/together.go",
		old: "b.Part.v == v && b.passes(now) != 0",
		new: "false",
		by:  "./workers/internal/valve TestABucketThatLetsOthersPassKeepsItsTurn",
	},
	{
		name: "policies-begin-anew-where-jobs-cost-much",
		file: "workers/internal/valve/together.go",
		old:  "if v.contested(now) {",
		new:  "if len(v.due) > 0 {",
		by:   "./workers/internal/valve TestPoliciesTakeTurnsWithCostlyJobs",
	},
	{
		name: "who-waits-for-a-checkpoint-begins-anew", file: "workers/internal/valve/together.go",
		old: "v.untold > now ||",
		new: "",
		by:  "./workers/internal/valve TestABucketThatAwaitsACheckpointKeepsItsTurn",
	},
	{
		name: "checkpoints-are-asked-for-one-by-one",
		file: "workers/internal/valve/startlimits.go",
		old:  "case turns && now < v.untold:",
		new:  "case false:",
		by:   "./workers/internal/valve TestABucketThatAwaitsACheckpointKeepsItsTurn",
	},
	{
		name: "costly-jobs-starve", file: "workers/internal/valve/together.go",
		old: "if b.passing.seq == head.Seq || len",
		new: "if len",
		by:  "./workers/internal/valve TestACostlyJobDelaysNoOtherAndDoesNotStarve",
	},
	{
		name: "costly-jobs-are-waited-for", file: "workers/internal/valve/together.go",
		old: "if b.passing.seq == head.Seq || len",
		new: "if true || len",
		by:  "./workers/internal/valve TestACostlyJobDelaysNoOtherAndDoesNotStarve",
	},

	// Limits that policies share.

	{
		name: "shared-limit-elsewhere", file: "workers/internal/valve/together.go",
		old: "if v.elsewhere(t) {",
		new: "if t.host == nil {",
		by:  "./workers/internal/core TestSimulationOfSharedLimits",
	},
	{
		name: "shared-limit-is-not-told", file: "workers/internal/valve/startlimits.go",
		old: "\t\t\tp.starts(now)",
		new: "if by == nil {\n\t\t\t\tp.starts(now)\n\t\t\t}",
		by:  "./workers/internal/valve TestNothingStartsUnderASharedLimitForLongWithoutACheckpoint",
	},
	{
		name: "shared-limit-goes-by-itself", file: "workers/internal/core/distribute.go",
		old: `line := c.lines[s.policy]; line != ""`,
		new: `line := ""; line != ""`,
		by:  "./workers/internal/core TestSimulationOfSharedLimits",
	},
	{
		name: "shared-limit-by-an-old-word", file: "workers/internal/core/shared.go",
		old: "p.says(before) > 0",
		new: "p.says(before) < 0",
		by:  "./workers/internal/core TestTheSharedLimitInForce",
	},
	{
		name: "shared-limit-by-policy", file: "workers/internal/valve/together.go",
		old: "(first == nil || v.taken < first.Part.v.taken)",
		new: "first == nil",
		by:  "./workers/internal/valve TestPoliciesTakeTurnsUnderALimitThatTheyShare",
	},
	{
		name: "shared-limit-without-weight", file: "workers/internal/valve/together.go",
		old: "v.taken = v.line.turns + float64(cost)/v.weight()",
		new: "v.taken = v.line.turns + float64(cost)",
		by:  "./workers/internal/valve TestPoliciesTakeTurnsUnderALimitThatTheyShare",
	},
	{
		name: "shared-limit-by-debts-of-before", file: "workers/internal/valve/together.go",
		old: "v.taken = l.turns\n",
		new: "v.taken += 0\n",
		by:  "./workers/internal/valve TestALeaderOfALineStartsOver",
	},
	{
		name: "shared-limit-foretold-alone", file: "workers/internal/valve/forecast.go",
		old: "others += min(share, waiting)",
		new: "others += 0 * min(share, waiting)",
		by:  "./workers/internal/valve TestPoliciesTakeTurnsUnderALimitThatTheyShare",
	},
	{
		name: "weight-of-nothing", file: "policy/validate.go",
		old: "case !p.HasQueue():",
		new: "case false:",
		by:  "./config TestProblems",
	},
	{
		name: "shared-limit-without-claims", file: "workers/internal/valve/starts.go",
		old: "return v.match()",
		new: "return nil, nil",
		by:  "./workers/internal/valve TestAClaimIsATurnUnderASharedLimit",
	},
	{
		name: "shared-limit-is-remembered", file: "workers/internal/valve/startlimits.go",
		old: "\t\treturn v.fits(b, now)",
		new: "\t\treturn true",
		by:  "./workers/internal/valve TestAllowedCountsOtherPoliciesTurns",
	},
	{
		name: "shared-limit-untold-once-allowed", file: "workers/internal/valve/startlimits.go",
		old: "\t\tb.Part.covers(head.takes(), now) {",
		new: "\t\tb.Part.tells(head.takes(), v.quota, now) {",
		by:  "./workers/internal/valve TestAllowedWaitsForASharedCheckpoint",
	},
	{
		name: "shared-limit-forgets-late-words", file: "workers/internal/valve/together.go",
		old: "case len(t.late) < mostLate && (len(l.Used) > 0 || v.Policy.CountsArrivals()):",
		new: "case false:",
		by:  "./workers/internal/valve TestUseOfASharedLimitOwnedElsewhereCounts",
	},
	{
		name: "shared-limit-waits-for-who-cannot", file: "workers/internal/valve/startlimits.go",
		old: "\t\tall.first = nil",
		new: "//",
		by:  "./workers/internal/valve TestAHeldPolicyDelaysNoOther",
	},
	{
		name: "shared-limit-is-two-in-a-file", file: "policy/store/sets.go",
		old: "c.problem(p.Name, p.CheckShared(other))",
		new: "_ = other",
		by:  "./policy/store TestASharedLimitIsOne",
	},
	{
		name: "shared-limit-is-another", file: "policy/store/policies.go",
		old: "err = p.CheckShared(other.Written)",
		new: "",
		by:  "./policy/store TestASharedLimitIsOne",
	},

	// Limits that count from the answer: settings and what shows them.

	{
		name: "count-from-patch-keeps-former-defaults", file: "policy/patch.go",
		old: "p.WithDefaults().withoutDerived()",
		new: "p.WithDefaults()",
		by:  "./policy TestDefaultsThatFollowTheLimitsFollowTheirPatch",
	},
	{
		name: "count-from-start-is-not-the-default", file: "policy/defaults.go",
		old: "if l.CountFrom == CountFromStart {",
		new: "if false {",
		by:  "./policy TestASharedLimitIsTheSameForAllPolicies",
	},
	{
		name: "count-from-differs-unsaid", file: "policy/shared.go",
		old: "}{l.Cost, l.CountFrom, l.Rule})",
		new: "}{l.Cost, \"\", l.Rule})",
		by:  "./policy TestASharedLimitIsTheSameForAllPolicies",
	},
	{
		name: "count-from-needs-no-name-of-a-cost", file: "policy/limit.go",
		old: "case l.CountFrom == CountFromEnd && l.Cost == \"\":",
		new: "case false:",
		by:  "./policy TestLimitsOnStartsAreRefusedWithAReason",
	},
	{
		name: "count-from-answer-of-estimates", file: "policy/limit.go",
		old: "case rule != nil && rule.Bound().Arrivals() != nil:",
		new: "case false:",
		by:  "./policy TestLimitsOnStartsAreRefusedWithAReason",
	},
	{
		name: "count-from-windows-of-the-clock-without-a-margin", file: "policy/limit.go",
		old: "if !l.Arrivals() || l.Algorithm == FixedWindow {",
		new: "if !l.Arrivals() {",
		by:  "./policy TestALimitThatCountsFromTheAnswer",
	},
	{
		name: "count-from-max-delay-of-nothing", file: "policy/validate.go",
		old: "case !p.CountsArrivals():",
		new: "case false:",
		by:  "./policy TestADoorPolicyCannotCountFromTheAnswer",
	},
	{
		name: "count-from-open-units-stay", file: "workers/workersprom/workersprom.go",
		old: "open.WithLabelValues(e.Policy, l.Name).Set(0)",
		new: "",
		by:  "./workers/workersprom TestRemaindersOfLimitsAreGauges",
	},
	{
		name: "count-from-open-units-of-keys-untold", file: "workers/internal/core/workers.go",
		old: "append(v.LeftOfAll(now), v.OpenOfKeys()...)",
		new: "v.LeftOfAll(now)",
		by:  "./workers/internal/core TestUnitsWithoutAnAnswerAreReportedOfAllKeysTogether",
	},
	{
		name: "played-jobs-last-as-all", file: "workers/whatif/drainer.go",
		old: "lasts := cmp.Or(d.lasts[r.Seq], d.options.Duration)",
		new: "lasts := d.options.Duration",
		by:  "./workers/whatif TestSmallCasesComeOutAsByHand",
	},
	// Why starts are late.

	{
		name: "limits-make-nothing-late", file: "workers/internal/valve/gates.go",
		old: "l.limited, l.limitedBy, h = h.until, h.by, hold{}",
		new: "_, h = l, hold{}",
		by:  "./workers/internal/valve TestCausesOfLateStarts",
	},
	{
		name: "late-by-what-timers-are", file: "workers/internal/valve/gates.go",
		old: "case more > pace.Tolerance:",
		new: "case more > 0:",
		by:  "./workers/internal/valve TestCausesOfLateStarts",
	},
	{
		name: "late-by-the-processor-alone", file: "workers/internal/valve/gates.go",
		old: "return v.left.by",
		new: "return byProcessor",
		by:  "./workers/internal/valve TestCausesOfLateStarts",
	},
	{
		name: "late-for-ever", file: "workers/internal/valve/gates.go",
		old: "sum.fade(now)",
		new: "",
		by:  "./workers/internal/valve TestLostTimeIsReportedOnce",
	},
	{
		name: "late-told-twice", file: "workers/internal/valve/gates.go",
		old: "v.lost[by] = 0",
		new: "",
		by:  "./workers/internal/valve TestLostTimeIsReportedOnce",
	},

	// Jobs that wait deep.

	{
		name: "known-jobs-go-deep", file: "workers/internal/valve/depth.go",
		old: "j.recorded || j.Attempts > 0 || j.crashes > 0,",
		new: "false,",
		by:  "./workers/internal/valve TestJobsWithStateStayNear",
	},
	{
		name: "deep-jobs-overtaken", file: "workers/internal/valve/depth.go",
		old: "next := n == 0 || first.before(b.ready[0].rank())",
		new: "next := n == 0",
		by:  "./workers/internal/valve TestNearJobsWaitForEarlierDeepJobs",
	},
	{
		name: "deep-jobs-not-swept", file: "workers/internal/valve/inherit.go",
		old: "surfaced := p.sweepDeep()",
		new: "var surfaced []*bucket",
		by:  "./workers/internal/valve TestASweepFindsMissingDeepJobs",
	},
	{
		name: "deep-jobs-never-expire", file: "workers/internal/valve/starts.go",
		old: "v.lapse(now)",
		new: "",
		by:  "./workers/internal/valve TestAJobThatIsDeepExpires",
	},
	{
		name: "deep-jobs-expire-without-end", file: "workers/internal/valve/depth.go",
		old: "if p.stages[stageBurying] >= mostLapsing {",
		new: "if false {",
		by:  "./workers/internal/valve TestManyThatExpireAtOnceDoSoInPortions",
	},
	{
		name: "deep-redeliveries-taken-for-new", file: "workers/internal/valve/valve.go",
		old: "if p.seen(a, now) {",
		new: "if false {",
		by:  "./workers/internal/valve TestASweepFindsMissingDeepJobs",
	},
	{
		name: "memory-for-near-jobs-alone", file: "workers/internal/valve/depth.go",
		old: "m.near >= m.most/2",
		new: "m.near >= m.most",
		by:  "./workers/internal/valve TestMemoryIsABudget",
	},
	{
		name: "purges-fill-the-memory", file: "workers/internal/valve/questions.go",
		old: "return j.stage != stageGone }",
		new: "return false }",
		by:  "./workers/internal/valve TestAPurgeOfDeepJobsAwaitsItsAcknowledgements",
	},
	{
		name: "purges-take-the-servers-time", file: "workers/internal/valve/questions.go",
		old: "if now < goOn {",
		new: "if false {",
		by:  "./workers/internal/valve TestAPurgeOfDeepJobsAwaitsItsAcknowledgements",
	},
	{
		name: "deep-jobs-never-due", file: "workers/internal/valve/depth.go",
		old: "if at == d.Due {",
		new: "if false {",
		by:  "./workers/internal/valve TestJobsThatAreNotDueYetWaitDeep",
	},
	{
		name: "every-bucket-keeps-a-job-near", file: "workers/internal/valve/depth.go",
		old: " ||\n\t\treadAt(v.holdOf(b, now).until) > now)",
		new: ")",
		by:  "./workers/internal/valve TestBucketsThatStartNothingSoonHaveNoJobNear",
	},
	{
		name: "bucket-of-a-deep-job-forgotten", file: "workers/internal/valve/valve.go",
		old: "b.spot == spotNone || b.queued() == 1 {",
		new: "b.spot == spotNone {",
		by:  "./workers/internal/valve TestBucketsThatStartNothingSoonHaveNoJobNear",
	},
	{
		name: "texts-read-when-none-is-left", file: "workers/internal/valve/schedule.go",
		old: "v.readOn(b)",
		new: "",
		by:  "./workers/internal/valve TestAFastBucketDoesNotWaitForTexts",
	},
	{
		name: "letters-of-deep-jobs-headless", file: "workers/bury.go",
		old: "if u.Headless {",
		new: "if false {",
		by:  "./workers TestDeadLettersAndRepeatsOfDeepJobs",
	},
	{
		name: "ends-of-deep-jobs-without-sum", file: "workers/records.go",
		old: "if e.Headless {",
		new: "if false {",
		by:  "./workers TestDeadLettersAndRepeatsOfDeepJobs",
	},
	{
		name: "pages-not-put-together", file: "workers/internal/deep/deep.go",
		old: "into.live+from.live <= slots/2",
		new: "into.live+from.live < 0",
		by:  "./workers/internal/deep TestJobsThatStayKeepNoMoreThanTheirRoom",
	},

	// Programs, as their tests build them.

	{
		name: "unreadable-file-is-a-bad-configuration", file: "internal/daemon/daemon.go",
		old: "case unreadable || taken:",
		new: "case unreadable && taken:",
		by:  "./cmd/admitter TestBadStarts",
	},

	// Deadlines and crowds at the door.

	{
		name: "deadlines-have-no-expected-start", file: "admission/answer/answer.go",
		old: "o.Unreachable.UTC().Truncate(time.Millisecond)}",
		new: "time.Time{}}",
		by:  ". TestADeadlineThatCannotBeMetIsRefusedAtEachDoor",
	},
	{
		name: "deadlines-not-looked-at", file: "admission/submit.go",
		old: "if !known || late <= 0 {",
		new: "if !known || late <= 0 || late > 0 {",
		by:  "./admission TestAJobThatCannotMeetItsDeadlineIsRefusedAtTheDoor",
	},
	{
		name: "deadlines-of-repeats-refused", file: "admission/submit.go",
		old: `j.deadline.IsZero() || j.idempotency != ""`,
		new: "j.deadline.IsZero()",
		by:  "./admission TestAJobThatCannotMeetItsDeadlineIsRefusedAtTheDoor",
	},
	{
		name: "silent-valves-asked-again", file: "admission/expect.go",
		old: "e.skip(p, silence)",
		new: "_ = silence",
		by:  "./admission TestAJobThatCannotMeetItsDeadlineIsRefusedAtTheDoor",
	},
	{
		name: "crowds-come-back-together", file: "admission/refusals.go",
		old: "r.crowds[key] = at.Add(r.interval)",
		new: "r.crowds[key] = at",
		by:  "./admission TestARefusedCrowdIsToldPlacesOneByOne",
	},
	{
		name: "crowds-without-bound", file: "admission/refusals.go",
		old: "crowded || len(r.crowds) < maxRefusals",
		new: "crowded || true",
		by:  "./admission TestARefusedCrowdIsToldPlacesOneByOne",
	},

	// What targets say of their limits.

	{
		name: "hints-unheard", file: "workers/internal/valve/settle.go",
		old: "if o.Kind != record.OutcomeThrottled {",
		new: "if false {",
		by: "./workers/internal/valve " +
			"TestATargetThatHasNothingLeftPausesItsBucketBeforeItThrottles",
	},
	{
		name: "hints-not-read", file: "workers/httptarget/httptarget.go",
		old: "j.CoolDown(means.Pause(response.StatusCode))",
		new: "_ = means",
		by:  "./workers/httptarget TestAnEmptyQuotaPausesTheBucket",
	},
	{
		name: "unix-dates-taken-for-seconds", file: "internal/hints/hints.go",
		old: "case n >= 1e9:",
		new: "case n >= 1e15:",
		by:  "./internal/hints TestEverySpellingOfAnEmptyQuota",
	},
	{
		name: "hints-by-this-hosts-clock", file: "internal/hints/hints.go",
		old: `now = Clock(header, now)
	for _, s := range spellings {
		if left`,
		new: `_ = Clock
	for _, s := range spellings {
		if left`,
		by: "./internal/hints TestADateIsJudgedByTheTargetsClock",
	},
	{
		name: "dates-without-seconds-unread", file: "internal/hints/hints.go",
		old: `"2006-01-02T15:04Z07:00",
	"2006-01-02T15:04Z0700",`,
		new: "",
		by:  "./internal/hints TestEverySpellingOfAnEmptyQuota",
	},
	{
		name: "an-overdrawn-quota-unheard", file: "internal/hints/hints.go",
		old: "!ok || n > 0 && text[0] != '-' {",
		new: "!ok || n > 0 {",
		by:  "./internal/hints TestEverySpellingOfAnEmptyQuota",
	},

	// What answers mean.

	{
		name: "rules-of-apis-unheard", file: "internal/answers/judge.go",
		old: "s.api = ofHost(host)",
		new: "_ = host",
		by:  "./internal/answers TestAnswersOfWellKnownAPIs",
	},
	{
		name: "retry-after-of-a-503-alone", file: "internal/answers/judge.go",
		old: "status >= 400 && asks,",
		new: "status == 503 && asks,",
		by:  "./internal/answers TestAnswersWithoutARule",
	},
	{
		name: "bodies-judged-without-bound", file: "internal/answers/judge.go",
		old: "body: body[:min(len(body), MostRead)]}",
		new: "body: body}",
		by:  "./internal/answers TestLongBodiesMatchNoRuleOfJSON",
	},
	{
		name: "every-throttle-is-clear", file: "workers/httptarget/httptarget.go",
		old: "return workers.Doubtful(workers.RetryAfter(v.Wait, answer))",
		new: "return workers.RetryAfter(v.Wait, answer)",
		by:  "./workers/httptarget TestAJobThatAlwaysLooksThrottledBecomesADeadLetter",
	},
	{
		name: "a-doubtful-job-waits-for-ever", file: "workers/internal/valve/settle.go",
		old: "return j.alone == mostDoubts",
		new: "return false",
		by: "./workers/internal/valve " +
			"TestAJobThatAlwaysLooksThrottledDiesWhileOthersPass",
	},
	{
		name: "a-doubtful-job-stays-first", file: "workers/internal/valve/bucket.go",
		old: "tried := j.tried + max(j.doubts, 1) - 1",
		new: "tried := j.tried",
		by: "./workers/internal/valve " +
			"TestAJobThatAlwaysLooksThrottledDiesWhileOthersPass",
	},
	{
		name: "throttles-counted-though-none-passes", file: "workers/internal/valve/settle.go",
		old: "if j.doubts == 0 || j.Bucket.passed > j.doubted {",
		new: "if true {",
		by:  "./workers/internal/valve TestJobsThatAreAllThrottledCountNoAttempts",
	},
	{
		name: "a-locked-job-hurries", file: "workers/internal/valve/settle.go",
		old: "max(backoff, min(o.Again, time.Duration(v.Policy.MaxAge)))",
		new: "backoff",
		by:  "./workers/internal/valve TestAFailedJobWaitsAsLongAsItsTargetAsks",
	},
	{
		name: "proxy-holds-streams", file: "admission/permits/hear.go",
		old: "(failed || short || with.Hold && isJSON)",
		new: "(failed || short || isJSON)",
		by:  "./admission/outbound TestAStreamPassesAtOnceThoughARuleReadsAnswers",
	},
	{
		name: "proxy-repeats-what-may-be-done", file: "admission/outbound/send.go",
		old: "return response, notThrottled, nil // it may have done the work",
		new: "_ = code",
		by:  "./admission/outbound TestAFailureWithATimeIsNotRepeated",
	},
	{
		name: "transport-judges-by-status", file: "admission/permits/transport.go",
		old: "late.Status != result.Status {",
		new: "false {",
		by:  ". TestATransportReadsThrottlesInOtherWords",
	},

	// Waiting for the end of a job.

	{
		name: "outcome-told-to-any-subject", file: "queue/job/result.go",
		old: "return len(token) == waiterToken &&",
		new: "return true ||",
		by:  ". TestOutcomesGoToTheirOwnWaiters",
	},
	{
		name: "outcome-kept-from-who-waits", file: "workers/pool.go",
		old: "p.broker.PublishResult(job.Header, t)",
		new: "_ = t",
		by:  ". TestASubmissionCanWaitForTheEndOfItsJob",
	},
	{
		name: "credentials-shown-to-who-waits", file: "workers/httptarget/httptarget.go",
		old: "[]byte(redact.Text(string(body), hidden)))",
		new: "body)",
		by:  ". TestAWaitReturnsTheTargetsAnswer",
	},

	// Backups.

	{
		name: "queues-saved-before-what-is-known-of-jobs", file: "queue/kept.go",
		old: "1: {t.Partitions",
		new: "3: {t.Partitions",
		by:  "./queue/backup TestARestoreIsComplete",
	},
	{
		name: "schedules-saved-after-the-queues", file: "queue/kept.go",
		old: "n.schedules(): 2",
		new: "n.schedules(): 4",
		by:  "./queue/backup TestARestoreIsComplete",
	},
	{
		name: "sums-of-a-backup-not-compared", file: "queue/backup/backup.go",
		old: "hex.EncodeToString(sum.Sum(nil)) != s.SHA256 ||",
		new: "",
		by:  "./queue/backup TestATruncatedBackupIsRefused",
	},
	{
		name: "restored-over-what-is-there", file: "queue/backup/restore.go",
		old: "len(there) > 0",
		new: "false",
		by:  "./queue/backup TestARestoreIsComplete",
	},
	{
		name: "half-a-restore-stays", file: "queue/backup/restore.go",
		old: "for _, name := range r.done {",
		new: "for _, name := range r.done[:0] {",
		by:  "./queue/backup TestARestoreThatFailsLeavesNothing",
	},

	// Rates that are learnt.

	{
		name: "every-throttle-lowers", file: "workers/internal/adapt/adapt.go",
		old: "if s.Known() && began < s.since {",
		new: "if false {",
		by:  "./workers/internal/adapt TestThrottlesInARowLowerTheRateEverMore",
	},
	{
		name: "throttles-halve", file: "workers/internal/adapt/adapt.go",
		old: "Step*math.Pow(2, float64(row))",
		new: "MostStep",
		by:  "./workers/internal/valve TestABucketFindsItsTargetsHiddenLimit",
	},
	{
		name: "throttles-in-a-row-alike", file: "workers/internal/adapt/adapt.go",
		old: "row = min(s.row+1, mostRow)",
		new: "row = 0",
		by:  "./workers/internal/adapt TestThrottlesInARowLowerTheRateEverMore",
	},
	{
		name: "learnt-above-the-outflow", file: "workers/internal/adapt/adapt.go",
		old: "min(most, s.ceiling*(1+MostStep*x*x*x))",
		new: "s.ceiling*(1+MostStep*x*x*x)",
		by:  "./workers/internal/adapt TestTheRateComesBackInAMinuteOrTwo",
	},
	{
		name: "left-of-limits-not-told", file: "workers/drainer.go",
		old: "d.sink.Take(queue.Event{Type: queue.EventLimitsLeft, Policy: policy, Data: left})",
		new: "",
		by:  "./cmd/admitter TestRemaindersOfLimitsAreReported",
	},
	{
		name: "left-of-limits-elsewhere", file: "workers/internal/valve/inspect.go",
		old: "if t.here() != nil {",
		new: "if t.host == v || t.here() != nil {",
		by:  "./workers/internal/valve TestRemaindersOfLimitsAreReported",
	},
	{
		name: "left-of-shared-limits-elsewhere", file: "workers/internal/valve/inspect.go",
		old: "if t.here() != nil {",
		new: "if t.host != v || t.here() != nil {",
		by:  "./workers/internal/valve TestTheRemainderOfASharedLimitIsReportedByItsOwner",
	},
	{
		name: "left-of-limits-for-ever", file: "workers/workersprom/workersprom.go",
		old: "return is.Name == l.Name",
		new: "return true",
		by:  "./workers/workersprom TestRemaindersOfLimitsAreGauges",
	},
	{
		name: "adapted-buckets-not-told", file: "workers/drainer.go",
		old: "d.tell(queue.EventLowered, policy, int64(buckets))",
		new: "",
		by:  "./internal/e2e TestABucketLearnsTheLimitOfARealTarget",
	},
	{
		name: "slower-clocks-forget-slots", file: "workers/internal/pace/clock.go",
		old: "if slower {",
		new: "if false {",
		by:  "./workers/internal/pace TestAClockThatIsRefittedKeepsLaw2",
	},
	{
		name: "learnt-not-inherited", file: "workers/internal/valve/inherit.go",
		old: "p.v.inheritLearnt(b, c.Learnt, left(0), now)",
		new: "",
		by:  "./workers/internal/valve TestALearntLimitIsHandedOver",
	},
	{
		name: "learnt-not-in-checkpoints", file: "workers/internal/valve/handover.go",
		old: "c.learnt, matters = *b.learnt, true",
		new: "c.learnt = *b.learnt",
		by:  "./workers/internal/valve TestALearntLimitIsHandedOver",
	},
	{
		name: "learnt-outlives-its-policy", file: "workers/internal/valve/adapt.go",
		old: "if anew || b.pace == nil",
		new: "if b.pace == nil",
		by:  "./workers/internal/valve TestALearntLimitIsShownAndForgotten",
	},
	{
		name: "learnt-is-kept-with-its-bucket", file: "workers/internal/valve/schedule.go",
		old: "at = max(at, pace.Instant(b.learnt.Until(b.learnt.under.pace.Rate.PerSecond())))",
		new: "",
		by:  "./workers/internal/valve TestALearntLimitIsForgottenWithItsBucket",
	},

	// Traces that are played.

	{
		name: "played-bucket-holds-one-more", file: "workers/whatif/play.go",
		old: "of.held >= w.policy.QueueCapacity()",
		new: "of.held > w.policy.QueueCapacity()",
		by:  "./workers/whatif TestSmallCasesComeOutAsByHand",
	},
	{
		name: "played-runs-hold-no-place", file: "workers/whatif/drainer.go",
		old: "d.account.started(d.account.keys[r.Key], d.now, r.Stored.UnixNano(), r.Cost)",
		new: "d.account.started(d.account.keys[r.Key], d.now, r.Stored.UnixNano(), r.Cost)\n" +
			"d.account.left(d.account.keys[r.Key], d.now)",
		by: "./workers/whatif TestSmallCasesComeOutAsByHand",
	},
	{
		name: "played-refusals-cost-units", file: "workers/whatif/play.go",
		old: "return w.door.Limiter.Refund(ctx, from, r.Cost)",
		new: "return nil",
		by:  "./workers/whatif TestSmallCasesComeOutAsByHand",
	},
	{
		name: "played-by-the-machines-clock", file: "workers/whatif/play.go",
		old: "limiter.Options{Now: w.wall}",
		new: "limiter.Options{}",
		by:  "./workers/whatif TestSmallCasesComeOutAsByHand",
	},
	{
		name: "played-without-checkpoints", file: "workers/whatif/drainer.go",
		old: "d.part.Noted(true)",
		new: "d.part.Noted(false)",
		by:  "./workers/whatif TestSmallCasesComeOutAsByHand",
	},
	{
		name: "played-jobs-stay-deep", file: "workers/whatif/drainer.go",
		old: "d.part.Fetched(valve.Text{Ref: out.Fetches[i], Body: body}, now)",
		new: "",
		by:  "./workers/whatif TestTheLawsHoldInAPlay",
	},
	{
		name: "played-window-keeps-what-is-over", file: "workers/whatif/account.go",
		old: "k.in -= k.last[gone].cost",
		new: "",
		by:  "./workers/whatif TestSmallCasesComeOutAsByHand",
	},
	{
		name: "a-full-bucket-forgets-when-jobs-are-due", file: "workers/internal/valve/forecast.go",
		old: "if b.held > 0 && b.held == len(b.later)+int(b.deepLater) {",
		new: "if false {",
		by:  "./workers/internal/valve TestRoom",
	},
	{
		name: "who-does-not-read-keeps-its-place", file: "internal/lifecycle/slow.go",
		old: "if c.stall > 0 {",
		new: "if c.stall < 0 {",
		by:  "./admission/outbound TestACallerThatDoesNotReadIsCutOff",
	},
	{
		name: "proxy-routes-are-evaded-by-escapes", file: "admission/outbound/outbound.go",
		old: "if _, misread := c.route.match(host, read); misread {",
		new: "if _, misread := c.route.match(host, read); misread && false {",
		by:  "./admission/outbound TestRequestsAreRoutedByHostPrefixAndPath",
	},
	{
		name: "escaped-slashes-are-lost", file: "admission/outbound/outbound.go",
		old: "path := job.EscapedPath(r.URL)",
		new: "path := r.URL.EscapedPath()",
		by:  "./admission/outbound TestRequestsAreRoutedByHostPrefixAndPath",
	},
	{
		name: "the-last-of-equal-names-wins", file: "admission/httpapi/permits.go",
		old: "if (*names)[name] {",
		new: "if false {",
		by:  "./admission/httpapi TestALineThatCannotBeReadIsRefusedAlone",
	},
	{
		name: "debt-without-an-end", file: "workers/internal/quota/quota.go",
		old: "if st.owed = min(st.owed, of.mostOwed); st.owed > 0 {",
		new: "if st.owed > 0 {",
		by:  "./workers/internal/quota TestDebtEndsWithinAnHourOrTheWholeLimit",
	},
	{
		name: "policy-stops-posting-callbacks", file: "policy/change.go",
		old: "if before.Target.Calls() && !after.Target.Calls() {",
		new: "if false {",
		by:  "./policy TestCheckChange",
	},
	{
		name: "writes-without-an-answer-are-unlisted", file: "admission/manage/manage.go",
		old: "		errors.Is(err, admission.ErrUnavailable) {",
		new: "		false {",
		by:  "./admission/manage TestWritesWithoutAnAnswerAreAudited",
	},
	{
		name: "a-reload-leaves-its-policies-unknown", file: "penstock.go",
		old: "p.node.CatchUp(ctx)",
		new: "_ = ctx",
		by:  ". TestPoliciesAreFollowedAfterAReload",
	},
	{
		name: "calls-forget-why-they-lack-a-connection", file: "internal/door/door.go",
		old: "return nil, fmt.Errorf(\"%w: %w\", admission.ErrUnavailable, err)",
		new: "return nil, err",
		by:  "./internal/door TestACallWhoseFirstConnectionFailsIsUnavailable",
	},
	{
		name: "an-errors-methods-end-the-process", file: "workers/handler.go",
		old: "outcomeOf(0, err) // panics here",
		new: "// panics here",
		by:  "./workers TestDrainerOutcomes",
	},
	{
		name: "a-policys-name-becomes-another-and-a-key", file: "admission/answer/ask.go",
		old: "if !policy.IsName(r.Policy) {",
		new: "if false {",
		by:  ". TestClientErrorsMatchThePackages",
	},
	{
		name: "headers-that-cannot-be-sent-are-an-outage", file: "admission/header.go",
		old: "if !job.IsToken(name) {",
		new: "if false {",
		by:  ". TestClientErrorsMatchThePackages",
	},
	{
		name: "permits-errors-are-too-long-to-send", file: "admission/permits/permit.go",
		old: "text[:min(len(text), mostError)]",
		new: "text",
		by:  ". TestOddSettlementsFreeTheirPlace",
	},
}
