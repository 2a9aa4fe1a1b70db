package main

// table is all mutants, the part of the program that they break as headings. Texts are as short as they can be and still
// occur once, so that they go stale only when what they break changes.
var table = []mutant{
	// The lease, its fence and the leases of others.

	{
		name: "margin-removed", file: "workers/lease.go",
		old: "sent.add(c.options.lease-c.margin())",
		new: "sent.add(c.options.lease)",
		by:  "./workers TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "fence-late", file: "workers/lease.go",
		old: "sent.add(c.options.lease-c.margin())",
		new: "sent.add(c.options.lease+c.options.lease/5)",
		by:  "./workers TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "renewal-timed-from-answer", file: "workers/lease.go",
		old: "c.hold(revision, p.sent)",
		new: "c.hold(revision, now)",
		by:  "./workers TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "renewed-too-late", file: "workers/lease.go",
		old: "sent.add(c.options.lease/3)",
		new: "sent.add(c.options.lease)",
		by:  "./workers TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "starts-without-a-connection", file: "workers/core.go",
		old: "!c.lease.held || !c.connected",
		new: "!c.lease.held",
		by:  "./workers TestTheFenceComesAMarginBeforeTheEndOfTheLease",
	},
	{
		name: "host-clock-counts", file: "workers/boottime_linux.go",
		old: "unix.CLOCK_BOOTTIME, &t",
		new: "unix.CLOCK_MONOTONIC, &t",
		by:  "./workers TestTheTimeAsleepIsCounted",
	},
	{
		name: "unknown-renewal-is-ok", file: "workers/lease.go",
		old: `if result != putOK {
		c.out.reads = append(c.out.reads, read{p})
		return
	}
	c.hold(revision, p.sent)`,
		new: `if result == putConflict {
		c.out.reads = append(c.out.reads, read{p})
		return
	}
	c.hold(revision, p.sent)`,
		by: "./workers TestARenewalOfUnknownResultIsReadBack",
	},
	{
		name: "lease-nonce-unchecked", file: "workers/lease.go",
		old: "if s.nonce == r.Nonce {",
		new: "if true {",
		by:  "./workers TestARenewalOfUnknownResultIsReadBack",
	},
	{
		name: "own-lease-tombstone-ignored", file: "workers/lease.go",
		old: `case found.revision > c.lease.revision:
			c.loseLease(now)`,
		new: "",
		by:  "./workers TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "jump-unnoticed", file: "workers/lease.go",
		old: "c.server.known, c.server.since, c.lease.renewAt = false, now, now",
		new: "c.server.since, c.lease.renewAt = now, now",
		by:  "./workers TestNothingStartsAfterAJumpBeforeARenewalIsAnswered",
	},
	{
		name: "dates-stand-still-with-the-clocks", file: "workers/lease.go",
		old: "v.redate(now, c.wall(now))",
		new: "_ = v",
		by:  "./workers TestDatesHoldAfterTheClocksStoodStill",
	},
	{
		name: "stamp-from-before-a-jump-believed", file: "workers/lease.go",
		old: " || c.lease.sends[i].at < s.since {",
		new: " {",
		by:  "./workers TestDatesHoldAfterTheClocksStoodStill",
	},
	{
		name: "redated-job-not-due-yet-stays-late", file: "workers/valve.go",
		old: "at = min(at, now.later(j.NotBefore.Sub(wall)))",
		new: "at = min(at, j.at)",
		by:  "./workers TestDatesHoldAfterTheClocksStoodStill",
	},
	{
		name: "jump-does-not-hurry-the-renewal", file: "workers/lease.go",
		old: "c.server.known, c.server.since, c.lease.renewAt = false, now, now",
		new: "c.server.known, c.server.since = false, now",
		by:  "./workers TestAJumpOfTheClocksIsFollowedByARenewalAtOnce",
	},
	{
		name: "clock-of-the-server-never-corrected", file: "workers/lease.go",
		old: "if !s.known || most < s.least || least > s.most {",
		new: "if !s.known {",
		by:  "./workers TestTheServersClockIsKnownToAFewMilliseconds",
	},
	{
		name: "slow-stamp-believed", file: "workers/lease.go",
		old: "most-least > 2*int64(datesOff) && ",
		new: "false && ",
		by:  "./workers TestNothingStartsByAClockThatIsHardlyKnown",
	},
	{
		name: "slow-stamps-never-believed", file: "workers/lease.go",
		old: " && s.vague < mostVague {",
		new: " {",
		by:  "./workers TestNothingStartsByAClockThatIsHardlyKnown",
	},
	{
		name: "claims-before-the-servers-clock-is-known", file: "workers/core.go",
		old: " || !c.server.known {",
		new: " {",
		by:  "./workers TestNothingIsClaimedBeforeTheServersClockIsKnown",
	},
	{
		name: "lease-conflict-keeps-all", file: "workers/lease.go",
		old: "err != nil || r.Tombstone",
		new: "err != nil",
		by:  "./workers TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "lost-lease-keeps-partitions", file: "workers/lease.go",
		old: `c.dropShare(s)
		}
		s.state = shareIdle`,
		new: `_ = s
		}
		s.state = shareIdle`,
		by: "./workers TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "identity-reused", file: "workers/lease.go",
		old: "c.identities++",
		new: "c.identities = 1",
		by:  "./workers TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "valve-keeps-the-old-name", file: "workers/lease.go",
		old: "v.self = c.lease.id",
		new: "_ = v",
		by:  "./workers TestATombstoneOverTheOwnLeaseEndsAllOwnership",
	},
	{
		name: "tombstone-after-half-a-lease", file: "workers/lease.go",
		old: "now.since(p.seen) >= p.duration(c.options.lease):",
		new: "now.since(p.seen) >= p.duration(c.options.lease)/2:",
		by:  "./workers TestAPeerIsDeclaredDeadAfterItsWholeLease",
	},
	{
		name: "tombstone-a-tenth-early", file: "workers/lease.go",
		old: "now.since(p.seen) >= p.duration(c.options.lease):",
		new: "now.since(p.seen) >= p.duration(c.options.lease)*9/10:",
		by:  "./workers TestAPeerIsDeclaredDeadAfterItsWholeLease",
	},
	{
		name: "peers-wait-not-begun-anew", file: "workers/core.go",
		old: "p.seen = now",
		new: "_ = p",
		by:  "./workers TestAPeerIsDeclaredDeadAfterItsWholeLease",
	},
	{
		name: "tombstone-of-strangers", file: "workers/lease.go",
		old: "!p.gone && !p.strange && !p.inFlight",
		new: "!p.gone && !p.inFlight",
		by:  "./workers TestAStrangeLeaseIsLeftAlone",
	},
	{
		name: "tombstones-stay", file: "workers/lease.go",
		old: "c.out.deletes = append(c.out.deletes",
		new: "_ = append(c.out.deletes",
		by:  "./workers TestPeersAreForgotten",
	},
	{
		name: "tombstones-removed-though-named", file: "workers/lease.go",
		old: " && !c.named(id):",
		new: ":",
		by:  "./workers TestATombstoneStaysWhileARecordNamesIt",
	},
	{
		name: "gone-holder-not-crashed", file: "workers/takeover.go",
		old: "in.gone[r.Holder] = true",
		new: "_ = r",
		by:  "./workers TestRunsOfAGoneHolderCountAsCrashed",
	},

	// The last check before a start.

	{
		name: "fence-unchecked", file: "workers/ticket.go",
		old: "&& now < fence &&",
		new: "&& now < max(fence, never) &&",
		by:  "./workers TestWhatFollowsAJobThatComesBackComesBackToo",
	},
	{
		name: "handoff-limit-unchecked", file: "workers/ticket.go",
		old: "&& (r.latest == 0 || now <= r.latest)",
		new: "",
		by:  "./workers TestAJobIsOnItsWayForAMillisecondAtMost",
	},
	{
		name: "handoff-of-ten-milliseconds", file: "workers/clock.go",
		old: "handoff = time.Millisecond",
		new: "handoff = 10 * time.Millisecond",
		by:  "./workers TestAJobIsOnItsWayForAMillisecondAtMost",
	},
	{
		name: "overtaking-allowed", file: "workers/ticket.go",
		old: "t.passed = !overtakes && now",
		new: "t.passed = now",
		by:  "./workers TestWhatFollowsAJobThatComesBackComesBackToo",
	},
	{
		name: "who-may-overtake-comes-back", file: "workers/ticket.go",
		old: "return t.priority > u.priority || t.priority",
		new: "return t.priority",
		by:  "./workers TestWhatFollowsAJobThatComesBackComesBackToo",
	},
	{
		name: "stalled-ignored", file: "workers/settle.go",
		old: `b.stalled = true
			if b.pace != nil {`,
		new: "if b.pace != nil {",
		by:  "./workers TestWhatFollowsAJobThatComesBackComesBackToo",
	},
	{
		name: "refund-always", file: "workers/ticket.go",
		old: "if c.tat == s.after {",
		new: "if true {",
		by:  "./workers TestARefundIsOnlyForTheLastThatWasTaken",
	},
	{
		name: "refund-never", file: "workers/ticket.go",
		old: "if c.tat == s.after {",
		new: "if false {",
		by:  "./workers TestARefundIsOnlyForTheLastThatWasTaken",
	},
	{
		name: "spare-doubled", file: "workers/clock.go",
		old: "c.due = c.due.add(-times(cost, p.interval))",
		new: "c.due = c.due.add(-times(2*cost, p.interval))",
		by:  "./workers TestAJobThatComesBackGivesItsSlotsBack",
	},
	{
		name: "spare-never", file: "workers/clock.go",
		old: "c.due = c.due.add(-times(cost, p.interval))",
		new: "",
		by:  "./workers TestAJobThatComesBackGivesItsSlotsBack",
	},
	{
		name: "returned-keeps-its-slot", file: "workers/settle.go",
		old: "b.pace.spare(&b.clock, j.Cost)",
		new: "_ = j.Cost",
		by:  "./workers TestAJobThatComesBackGivesItsSlotsBack",
	},
	{
		name: "returned-keeps-its-total-slot", file: "workers/settle.go",
		old: "v.total.spare(&v.totalClock, j.Cost)",
		new: "_ = j.Cost",
		by:  "./workers TestAJobThatComesBackGivesItsSlotsBack",
	},

	// Who owns a partition, and of which epoch.

	{
		name: "outcome-heard-by-a-thawed-process", file: "workers/core.go",
		old: "!c.open(now) || s == nil",
		new: "s == nil",
		by:  "./workers TestAThawedProcessHearsNoOutcomes",
	},
	{
		name: "late-outcome-not-heard", file: "workers/tenure.go",
		old: "case stageWaiting: // its time was up",
		new: "case stageGone: // its time was up",
		by:  "./workers TestAnOutcomeThatComesAfterTheTimeoutIsHeard",
	},
	{
		name: "epoch-unchecked-arrived", file: "workers/core.go",
		old: "if p.epoch != epoch || p.state > partitionLive || v == nil {",
		new: "if p.state > partitionLive || v == nil {",
		by:  "./workers TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "epoch-unchecked-opened", file: "workers/takeover.go",
		old: "s.part != p || p.epoch != epoch ||",
		new: "s.part != p ||",
		by:  "./workers TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "epoch-unchecked-broke", file: "workers/core.go",
		old: "if p.epoch == epoch && p.state <= partitionLive {",
		new: "if p.state <= partitionLive {",
		by:  "./workers TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "epoch-unchecked-strayed", file: "workers/core.go",
		old: `p.epoch == epoch && p.state <= partitionLive {
		highest`,
		new: `p.state <= partitionLive {
		highest`,
		by: "./workers TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "epoch-unchecked-swept", file: "workers/core.go",
		old: `p.epoch == epoch && p.state <= partitionLive {
		v.swept`,
		new: `p.state <= partitionLive {
		v.swept`,
		by: "./workers TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "epoch-unchecked-unopened", file: "workers/takeover.go",
		old: "&& o.part.epoch == epoch {",
		new: "{",
		by:  "./workers TestABacklogOfAnEarlierEpochIsNotHeard",
	},
	{
		name: "strange-record-taken", file: "workers/ownership.go",
		old: `if s.strange {
		return false
	}`,
		new: "",
		by:  "./workers TestRecordsOfAnotherVersionAreLeftAlone",
	},
	{
		name: "after-chain-dropped", file: "workers/ownership.go",
		old: "r.After = cmp.Or(s.before.record.After, s.before.revision)",
		new: "_ = cmp.Or(1)",
		by:  "./workers TestTwoCrashesInARowForgetNoRuns",
	},
	{
		name: "claim-forgets-running", file: "workers/ownership.go",
		old: "= b.Running, b.Done, b.Stream, b.Last",
		new: "= nil, b.Done, b.Stream, b.Last",
		by:  "./workers TestAClaimPassesOnWhatRan",
	},
	{
		name: "late-claim-not-acted-on", file: "workers/ownership.go",
		old: `if c.lease.held {
			c.settleShare(s, now)
		}`,
		new: "",
		by:  "./workers TestAReleaseWhoseAnswerIsLostIsOver",
	},
	{
		name: "older-checkpoint-believed", file: "workers/takeover.go",
		old: "newer := found.checkpoint.Epoch == b.revision ||",
		new: "newer := true || found.checkpoint.Epoch == b.revision ||",
		by:  "./workers TestACheckpointOfAFormerOwnerIsNoWordOnWhatRuns",
	},
	{
		name: "record-age-unread", file: "workers/ownership.go",
		old: "if s.part == nil && s.exists && s.stored.IsZero() && s.vanished == 0 {",
		new: "if false {",
		by:  "./workers TestARecordOfUnknownAgeIsReadBeforeItIsClaimed",
	},
	{
		name: "connection-does-not-rebuild", file: "workers/core.go",
		old: `s.part.broken = true
		}
	}
	c.tickAt = now
}

// put takes`,
		new: `_ = s
		}
	}
	c.tickAt = now
}

// put takes`,
		by: "./workers TestBacklogsAreOpenedAnewAfterTheConnectionWasLost",
	},
	{
		name: "release-not-repeated", file: "workers/ownership.go",
		old: "if s.unwritten != nil && now >= s.actAt {",
		new: "if false {",
		by:  "./workers TestAReleaseThatWasNotAppliedIsRepeated",
	},
	{
		name: "release-ignores-undecided", file: "workers/ownership.go",
		old: "s.part.undecided.any() || s.part.noting > 0",
		new: "s.part.noting > 0",
		by:  "./workers TestAHandoverWaitsForJobsOnTheirWayToAWorker",
	},
	{
		name: "release-ignores-noting", file: "workers/ownership.go",
		old: "s.part.undecided.any() || s.part.noting > 0",
		new: "s.part.undecided.any()",
		by:  "./workers TestHandoverWaitsForCrashesToBeRecorded",
	},
	{
		name: "release-to-dead-favourite", file: "workers/ownership.go",
		old: `return to != "" && c.peers[to].alive(now, c.options.lease) || c.quiet(s)`,
		new: `return to != "" || c.quiet(s)`,
		by:  "./workers TestADrainerThatLeavesWithoutAnHeirWaitsForItsJobs",
	},
	{
		name: "release-before-quiet", file: "workers/ownership.go",
		old: `return to != "" && c.peers[to].alive(now, c.options.lease) || c.quiet(s)`,
		new: `return to != "" || true`,
		by:  "./workers TestADrainerThatLeavesWithoutAnHeirWaitsForItsJobs",
	},
	{
		name: "leaves-before-outcomes-told", file: "workers/core.go",
		old: "return len(c.unsettled) == 0",
		new: "return true",
		by:  "./workers TestADrainerEndsWhenItsOutcomesAreDelivered",
	},
	{
		name: "reported-accepted-when-fresh", file: "workers/core.go",
		old: "|| s.part.state > partitionLive || s.part.fresh {",
		new: "|| s.part.state > partitionLive {",
		by:  "./workers TestAnOutcomeIsNotTakenBeforeTheInheritanceIsKnown",
	},
	{
		name: "partitions-move-at-once", file: "workers/ownership.go",
		old: "now < c.settledAt ||",
		new: "",
		by:  "./workers TestPartitionsMoveWhenTheDrainersHaveBeenTheSameForAWhile",
	},
	{
		name: "more-than-its-share", file: "workers/ownership.go",
		old: "cmp.Compare(max(load[best]+1, quota), max(load[id]+1, quota)),",
		new: "0*cmp.Compare(max(load[best]+1, quota), max(load[id]+1, quota)),",
		by:  "./workers TestFavouritesAreBalancedAndFewMove",
	},

	{
		name: "dead-after-three-leases", file: "workers/lease.go",
		old: "now.since(p.seen) >= p.duration(c.options.lease)",
		new: "now.since(p.seen) >= 3*p.duration(c.options.lease)",
		by:  "./workers TestSimulationLaws -seeds 20",
	},

	// What a successor inherits.

	{
		name: "takeover-burst-credit", file: "workers/clock.go",
		old: `c.tat = max(c.tat, t.add(p.envelope-earliness))
	c.idle = 0`,
		new:        "c.idle = 0",
		equivalent: "hold leaves no lateness and no idleness, so that take empties the envelope at the first start all the same",
	},
	{
		name: "inherited-run-not-counted", file: "workers/valve.go",
		old: `j.holder = in.holder
		b.running++`,
		new: "j.holder = in.holder",
		by:  "./workers TestInheritedRunsHoldConcurrency",
	},
	{
		name: "unseen-does-not-gate", file: "workers/valve.go",
		old: "b.noting > 0 || b.concurrency > 0 && b.part.unseen > 0",
		new: "b.noting > 0",
		by:  "./workers TestInheritedRunsHoldConcurrency",
	},
	{
		name: "no-checkpoints", file: "workers/checkpoint.go",
		old: "case !s.changed || s.pending:",
		new: "case true:",
		by:  "./workers TestCheckpointListsWhatIsDueAfterTheLease",
	},
	{
		name: "checkpoint-lists-what-is-due-after-a-whole-lease", file: "workers/checkpoint.go",
		old: "g.some(n, now, c.lease.fence)",
		new: "g.some(n, now, now.add(c.options.lease))",
		by:  "./workers TestCheckpointListsWhatIsDueAfterTheLease",
	},
	{
		name: "cooldown-not-handed-over", file: "workers/checkpoint.go",
		old: "if b.cool > after {",
		new: "if false {",
		by:  "./workers TestACoolDownIsHandedOver",
	},
	{
		name: "done-not-handed-over", file: "workers/checkpoint.go",
		old: "h.Done = v.doneJobs(p, now)",
		new: "_ = v.doneJobs",
		by:  "./workers TestFinishedJobsAreKnownToTheOwnerAfterTheNext",
	},
	{
		name: "told-outcomes-not-passed-on", file: "workers/tenure.go",
		old: "if in := p.inherited[seq]; in.outcome != nil {",
		new: "if in := p.inherited[seq]; false {",
		by:  "./workers TestAnOutcomeThatWasToldIsTheTellersNoMore",
	},
	{
		name: "inherited-outcomes-not-listed", file: "workers/checkpoint.go",
		old: "running = append(running, runRecord{seq, v.self})",
		new: "",
		by:  "./workers TestAnOutcomeThatWasToldIsTheTellersNoMore",
	},
	{
		name: "crash-clock-always-believed", file: "workers/tenure.go",
		old: "time.Microsecond)) <= now {",
		new: "time.Microsecond)) <= 0 {",
		by:  "./workers TestAClockThatMayHaveGoneOnIsNotBelieved",
	},
	{
		name: "elapsed-doubled", file: "workers/takeover.go",
		old: "return max(0, least),",
		new: "return 2 * max(0, least),",
		by:  "./workers TestASlowRateGoesOnOverARestart",
	},
	{
		name: "elapsed-200-ms-too-much", file: "workers/takeover.go",
		old: "return max(0, least),",
		new: "return 200*time.Millisecond + max(0, least),",
		by:  "./workers TestASlowRateGoesOnOverARestart",
	},
	{
		name: "elapsed-by-the-stamps-alone", file: "workers/takeover.go",
		old: "least = min(least, now.since(seen))",
		new: "_ = seen",
		by:  "./workers TestNoLeadersClockShortensAWait",
	},
	{
		name: "elapsed-of-the-server-ignored", file: "workers/takeover.go",
		old: "least = min(least, c.wall(now).Sub(told))",
		new: "_ = told",
		by:  "./workers TestNoLeadersClockShortensAWait",
	},
	{
		name: "elapsed-of-the-machine-ignored", file: "workers/takeover.go",
		old: "least = min(least, found.read.Sub(stored))",
		new: "_ = stored",
		by:  "./workers TestNoLeadersClockShortensAWait",
	},
	{
		name: "attempts-of-another-stream-taken", file: "workers/takeover.go",
		old: "return stream != found.created.UnixNano()",
		new: "return false",
		by:  "./workers TestAttemptsOfAnotherStreamAreToldApartByItsId",
	},
	{
		name: "total-no-hold-after-crash", file: "workers/tenure.go",
		old: "v.total.hold(&v.totalClock, now.add(in.fence+v.total.interval))",
		new: "_ = in.fence",
		by:  "./workers TestAClockThatMayHaveGoneOnIsNotBelieved",
	},
	{
		name: "total-clock-not-inherited", file: "workers/tenure.go",
		old: `in.wind(&v.totalClock, c, v.total, v.total.before(in.handover.Total, 1), now)`,
		new: "_ = v.total",
		by:  "./workers TestAClockThatMayHaveGoneOnIsNotBelieved",
	},
	{
		name: "attempts-not-inherited", file: "workers/valve.go",
		old: "j.attempts, j.crashes, j.lastError, j.recorded = in.record.Attempts,",
		new: "j.attempts, j.crashes, j.lastError, j.recorded = 0*in.record.Attempts,",
		by:  "./workers TestAttemptsAndTheirBackoffAreInherited",
	},
	{
		name: "backoff-not-inherited", file: "workers/valve.go",
		old: "case in.dueIn > 0:",
		new: "case in.dueIn > 0 && false:",
		by:  "./workers TestAttemptsAndTheirBackoffAreInherited",
	},
	{
		name: "inherited-run-never-times-out", file: "workers/valve.go",
		old: `	v.lookAt(j, now.add(time.Duration(v.policy.Timeout)))
	case v.policy.Paced()`,
		new: "case v.policy.Paced()",
		by:  "./workers TestAnInheritedRunTimesOut",
	},
	{
		name: "progress-not-heard", file: "workers/tenure.go",
		old: `v.lookAt(j, now.add(time.Duration(v.policy.Timeout)))
			v.place(j.bucket, now)`,
		new: "v.place(j.bucket, now)",
		by:  "./workers TestAnInheritedRunTimesOut",
	},
	{
		name: "outcome-of-another-run-taken", file: "workers/tenure.go",
		old: `|| o.Holder != "" && o.Holder != j.holder {`,
		new: "{",
		by:  "./workers TestAnOutcomeOfAnEarlierRunIsNotThatOfTheNext",
	},
	{
		name: "reopen-forgets-recent", file: "workers/tenure.go",
		old: `for _, f := range p.recent {
		p.finished[f.seq] = struct{}{}
	}`,
		new: "",
		by:  "./workers TestAFinishedJobThatComesAgainIsOnlyAcknowledged",
	},
	{
		name: "confirmed-not-remembered-while-sweeping", file: "workers/settle.go",
		old: "p.finished[seq] = struct{}{} //",
		new: "//",
		by:  "./workers TestAFinishedJobThatComesAgainIsOnlyAcknowledged",
	},
	{
		name: "acks-of-redelivered-not-repeated", file: "workers/valve.go",
		old: "v.out.acks = append(v.out.acks, recordOf{p, a.Seq})",
		new: "_ = a",
		by:  "./workers TestAFinishedJobThatComesAgainIsOnlyAcknowledged",
	},
	{
		name: "resume-without-hold", file: "workers/tenure.go",
		old: `b.pace.hold(&b.clock, now)
			}
			v.place(b, now)`,
		new: `_ = b.pace
			}
			v.place(b, now)`,
		by: "./workers TestStartsThatAreAllowedAgainAreNoBurst",
	},
	{
		name: "holder-gone-keeps-unseen", file: "workers/tenure.go",
		old: `in.holder, in.crashed = "", holder
				v.saw(p, now)`,
		new: `in.holder, in.crashed = "", holder`,
		by:  "./workers TestRunsOfAHolderThatDiesBeforeTheyComeHoldNothing",
	},
	{
		name: "sweep-keeps-unseen", file: "workers/tenure.go",
		old: `if in.runs() {
			v.saw(p, now)`,
		new: `if false {
			v.saw(p, now)`,
		by: "./workers TestASweepEndsTheWaitForRunsThatAreGone",
	},
	{
		name: "sweep-keeps-inherited", file: "workers/tenure.go",
		old: `delete(p.inherited, seq)
		if in.saved`,
		new: "if in.saved",
		by:  "./workers TestASweepEndsTheWaitForRunsThatAreGone",
	},
	{
		name: "sweep-forgets-what-lies-beyond", file: "workers/tenure.go",
		old: `if seq > p.last {
			continue`,
		new: `if false {
			continue`,
		by: "./workers TestASweepSaysNothingOfWhatLiesBeyondIt",
	},
	{
		name: "sweep-removes-what-lies-beyond", file: "workers/tenure.go",
		old: "j.generation != p.generation && j.Seq <= p.last",
		new: "j.generation != p.generation",
		by:  "./workers TestASweepRemovesWhatIsGoneAndNothingElse",
	},
	{
		name: "sweep-removes-what-has-come", file: "workers/tenure.go",
		old: "j.generation != p.generation && j.Seq <= p.last",
		new: "j.Seq <= p.last",
		by:  "./workers TestASweepRemovesWhatIsGoneAndNothingElse",
	},
	{
		name: "vanished-not-removed", file: "workers/tenure.go",
		old: `case stageWaiting, stageDelayed:
			v.out.vanished++`,
		new: `case stageGone:
			v.out.vanished++`,
		by: "./workers TestASweepRemovesWhatIsGoneAndNothingElse",
	},
	{
		name: "sweep-keeps-acknowledged", file: "workers/tenure.go",
		old: `case stageAcking:
			v.confirmed(p, j.Seq, now)`,
		new: "case stageAcking:",
		by:  "./workers TestASweepRemovesWhatIsGoneAndNothingElse",
	},
	{
		name: "finished-forgotten-by-a-sweep", file: "workers/tenure.go",
		old: "return seq <= p.last })",
		new: "return true })",
		by:  "./workers TestASweepRemovesWhatIsGoneAndNothingElse",
	},
	{
		name: "unseen-waited-for-without-end", file: "workers/tenure.go",
		old: "p.unseen > 0 && now >= p.unseenUntil",
		new: "false",
		by:  "./workers TestRunsThatDoNotArriveHoldNothingUpForEver",
	},
	{
		name: "records-of-any-size", file: "workers/fit.go",
		old: "int(min(mostRecordBytes, payload/8*7))",
		new: "int(mostRecordBytes+0*payload)",
		by:  "./workers TestRecordsFitTheServersMessages",
	},
	{
		name: "more-than-the-list-holds-left-out", file: "workers/fit.go",
		old: "h.Running[:running], byHolder(h.Running[running:])",
		new: "h.Running[:running], byHolder(nil)",
		by:  "./workers TestAHandoverListsAllThatRunsAndHasFinished",
	},
	{
		name: "confirmed-crowd-out-unconfirmed", file: "workers/checkpoint.go",
		old: "return append(done, slices.Compact(confirmed)...)",
		new: "return append(slices.Compact(confirmed), done...)",
		by:  "./workers TestConfirmedJobsDoNotCrowdOutUnconfirmedOnes",
	},
	{
		name: "retired-policy-opened-for-ever", file: "workers/takeover.go",
		old: "s.over = streamless &&",
		new: "s.over = false && streamless &&",
		by:  "./workers TestAPartitionOfARetiredPolicyIsNotOpenedForEver",
	},
	{
		name: "release-repeated-without-a-pause", file: "workers/ownership.go",
		old: "s.actAt = now.add(doubled(releaseAgain, s.rewrites, reopenMost))",
		new: "s.actAt = now",
		by:  "./workers TestAReleaseThatCannotBeWrittenIsTriedLessAndLessOften",
	},
	{
		name: "beginner-takes-what-is-lost", file: "workers/policies.go",
		old: "if p.stored.Before(c.options.ownersMade) {",
		new: "if false {",
		by:  "./workers TestWhoBeginsAfterALossLeavesOwnersTheTimeToWriteAgain",
	},
	{
		name: "beginner-waits-in-a-new-installation", file: "workers/policies.go",
		old: "if p.stored.Before(c.options.ownersMade) {",
		new: "if true {",
		by:  "./workers TestWhoBeginsAfterALossLeavesOwnersTheTimeToWriteAgain",
	},
	{
		name: "leaves-with-what-it-could-not-open", file: "workers/core.go",
		old: "if s.state != shareIdle {",
		new: "if s.state != shareIdle && s.failures == 0 {",
		by:  "./workers TestWhoLeavesGivesBackWhatItCouldNotOpen",
	},
	{
		name: "claim-forgets-what-was-done", file: "workers/ownership.go",
		old: "= b.Running, b.Done, b.Stream, b.Last",
		new: "= b.Running, nil, b.Stream, b.Last",
		by:  "./workers TestACrashBeforeTheOpeningKeepsWhatWasHandedOver",
	},
	{
		name: "crash-forgets-what-was-done-before", file: "workers/takeover.go",
		old: "= b.record.Running, b.record.Done",
		new: "= b.record.Running, nil",
		by:  "./workers TestACrashBeforeTheOpeningKeepsWhatWasHandedOver",
	},
	{
		name: "unopened-partition-kept", file: "workers/ownership.go",
		old: "s.part.unopened && (c.givesUp(s) || s.over || c.othersMay(s, now)):",
		new: "s.part.unopened && (c.givesUp(s) || s.over):",
		by:  "./workers TestAPartitionThatCannotBeOpenedIsLeftToOthers",
	},
	{
		name: "partial-not-said", file: "workers/fit.go",
		old: "h.Clocks, h.Partial = h.Clocks[:i], true",
		new: "h.Clocks = h.Clocks[:i]",
		by:  "./workers TestHandoverFitsAMessage",
	},
	{
		name: "short-clocks-first", file: "workers/checkpoint.go",
		old: "cmp.Compare(waitB, waitA)",
		new: "cmp.Compare(waitA, waitB)",
		by:  "./workers TestClocksThatLoseMostAreListedFirst",
	},
	{
		name: "crashed-not-handed-on", file: "workers/checkpoint.go",
		old: "h.Crashed = max(1, micros(now.since(p.crashedAt)))",
		new: "",
		by:  "./workers TestCrashIsRememberedOverAPlannedHandover",
	},
	{
		name: "other-streams-sequences", file: "workers/takeover.go",
		old: "in.handover.Running, in.handover.Done = nil, nil",
		new: "",
		by:  "./workers TestRecordsOfAFormerStreamAreNotApplied",
	},
	{
		name: "stream-made-anew-unnoticed", file: "workers/takeover.go",
		old: "} else if !found.created.Equal(p.created) {",
		new: "} else if false {",
		by:  "./workers TestAStreamMadeAnewUnderItsOwner",
	},

	// What becomes of a job.

	{
		name: "ack-before-dead-letter", file: "workers/settle.go",
		old: "v.out.burials = append(v.out.burials, burial{j, reason, detail})",
		new: `v.out.burials = append(v.out.burials, burial{j, reason, detail})
	v.out.acks = append(v.out.acks, recordOf{j.bucket.part, j.Seq})`,
		by: "./workers TestMalformedJobsTakeNoSlot",
	},
	{
		name: "malformed-starts", file: "workers/valve.go",
		old: "case a.Malformed != nil:",
		new: "case false:",
		by:  "./workers TestMalformedJobsTakeNoSlot",
	},
	{
		name: "cooldown-ignored", file: "workers/settle.go",
		old: "b.cool = max(b.cool, now.add(min(wait, time.Duration(retry.MaxCooldown))))",
		new: "",
		by:  "./workers TestCooldowns",
	},
	{
		name: "throttle-without-limit", file: "workers/settle.go",
		old: "now.add(min(wait, time.Duration(retry.MaxCooldown)))",
		new: "now.add(wait)",
		by:  "./workers TestCooldowns",
	},
	{
		name: "throttle-counts-an-attempt", file: "workers/settle.go",
		old: `v.throttle(b, o.RetryAfter, now)
		v.makeReady(j, now)`,
		new: `v.throttle(b, o.RetryAfter, now)
		j.attempts++
		v.makeReady(j, now)`,
		by: "./workers TestCooldowns",
	},
	{
		name: "every-throttle-of-a-row-doubles", file: "workers/settle.go",
		old: "if now >= b.cool { // answers",
		new: "if true { // answers",
		by:  "./workers TestAnswersToJobsUnderWayTogetherMakeOneCooldown",
	},
	{
		name: "retry-goes-last", file: "workers/bucket.go",
		old: `return j.Seq < k.Seq
}
func (j orderedJob) moved`,
		new: `if (j.attempts > 0) != (k.attempts > 0) {
		return k.attempts > 0
	}
	return j.Seq < k.Seq
}
func (j orderedJob) moved`,
		by: "./workers TestPoisonJobsAtTheHeadHoldTheirBucketUpForOneProbe",
	},
	{
		name: "priority-reversed", file: "workers/bucket.go",
		old: "return j.Priority > k.Priority",
		new: "return j.Priority < k.Priority",
		by:  "./workers TestPriorityGoesFirst",
	},
	{
		name: "deadline-ignored", file: "workers/valve.go",
		old: "j.expires = min(j.expires, now.later(j.Deadline.Sub(wall)))",
		new: "",
		by:  "./workers TestDeadlinesPassWhereverAJobWaits",
	},
	{
		name: "deadline-ignored-in-pause", file: "workers/valve.go",
		old: `case j.expires <= now:
		v.detach(j)`,
		new: `case j.expires <= now && j.bucket.paused && j.stage == stageWaiting:
		v.lookAt(j, now.add(time.Hour))
	case j.expires <= now:
		v.detach(j)`,
		by: "./workers TestDeadlinesPassWhereverAJobWaits",
	},
	{
		name: "deadline-a-second-early", file: "workers/valve.go",
		old: "j.expires = min(j.expires, now.later(j.Deadline.Sub(wall)))",
		new: "j.expires = min(j.expires, now.later(j.Deadline.Sub(wall)-time.Second))",
		by:  "./workers TestDeadlinesPassWhereverAJobWaits",
	},
	{
		name: "not-before-ignored", file: "workers/valve.go",
		old: "case !a.NotBefore.IsZero() && a.NotBefore.After(wall):",
		new: "case !a.NotBefore.IsZero() && a.NotBefore.After(wall) && false:",
		by:  "./workers TestAJobStartsAtItsNotBefore",
	},
	{
		name: "backoff-ignored", file: "workers/settle.go",
		old: "v.delay(j, now.add(j.backoff))",
		new: "v.delay(j, now)",
		by:  "./workers TestFailedAttemptsBackOffWithJitter",
	},
	{
		name: "backoff-not-random", file: "workers/settle.go",
		old: "time.Duration(draw*float64(d-d/2))",
		new: "d - d/2",
		by:  "./workers TestFailedAttemptsBackOffWithJitter",
	},
	{
		name: "crash-not-counted", file: "workers/settle.go",
		old: "j.crashes++",
		new: "",
		by:  "./workers TestPoisonJobDiesAtItsThirdCrash",
	},
	{
		name: "poison-after-two", file: "workers/valve.go",
		old: "mostCrashes = 3",
		new: "mostCrashes = 2",
		by:  "./workers TestPoisonJobDiesAtItsThirdCrash",
	},
	{
		name: "third-crash-goes-on", file: "workers/settle.go",
		old: `case j.crashes >= mostCrashes:
		v.buryCrashed(j)
		v.place(`,
		new: `case false:
		v.buryCrashed(j)
		v.place(`,
		by: "./workers TestPoisonJobDiesAtItsThirdCrash",
	},
	{
		name: "recorded-third-crash-starts", file: "workers/valve.go",
		old: "case j.crashes >= mostCrashes:",
		new: "case false:",
		by:  "./workers TestAJobThatCrashedThreeOwnersNeverStartsAgain",
	},
	{
		name: "recorded-crash-counts-again", file: "workers/tenure.go",
		old: " || r.Holder == j.record.CrashedBy",
		new: "",
		by:  "./workers TestACrashThatIsRecordedIsNotWaitedForAgain",
	},
	{
		name: "crash-note-does-not-hold-bucket", file: "workers/settle.go",
		old: "j.bucket.noting++",
		new: "j.bucket.noting += 0",
		by:  "./workers TestPoisonJobDiesAtItsThirdCrash",
	},
	{
		name: "failed-buried-as-permanent", file: "workers/settle.go",
		old: `if j.attempts >= retry.MaxAttempts {
			v.bury(j, ReasonAttempts, o.Error)`,
		new: `if j.attempts >= 1 {
			v.bury(j, ReasonPermanent, o.Error)`,
		by: "./workers TestLettersCountEveryAttempt",
	},
	{
		name: "attempts-never-used-up", file: "workers/settle.go",
		old: "if j.attempts >= retry.MaxAttempts {",
		new: "if j.attempts >= 2*retry.MaxAttempts {",
		by:  "./workers TestLettersCountEveryAttempt",
	},
	{
		name: "interrupted-counts", file: "workers/pool.go",
		old: "o.Kind = outcomeUncounted // interrupted",
		new: "// interrupted",
		by:  "./workers TestAnInterruptedJobCountsNoAttempt",
	},
	{
		name: "worker-thresholds-ignored", file: "workers/valve.go",
		old: "return free > 0 && b.running <= 3*(free-1)",
		new: "return free > 0",
		by:  "./workers TestNoBucketTakesAllWorkers",
	},
	{
		name: "costs-that-never-fit", file: "workers/valve.go",
		old: "case v.policy.Paced() && j.Cost > v.policy.Capacity:",
		new: "case false:",
		by:  "./workers TestCostsThatNeverFit",
	},
	{
		name: "concurrency-one-more", file: "workers/bucket.go",
		old: "b.running >= b.concurrency",
		new: "b.running > b.concurrency",
		by:  "./workers TestLiveChangesOfConcurrencyAndWorkers",
	},

	{
		name: "attempts-of-the-dead-stand", file: "workers/attempts.go",
		old: "err == nil && r.Epoch > s.record.Epoch",
		new: "false",
		by:  "./workers TestAnAttemptRecordIsFenced",
	},
	{
		name: "attempts-of-the-dead-forgotten", file: "workers/attempts.go",
		old: "if r.Stream == s.record.Stream {",
		new: "if false {",
		by:  "./workers TestWhatAFormerOwnerCountedLateCounts",
	},
	{
		name: "noted-crash-holds-its-bucket", file: "workers/settle.go",
		old: "	j.bucket.noting--\n",
		new: "",
		by:  "./workers TestSimulationLaws -seeds 40",
	},

	// Clocks and turns.

	{
		name: "smaller-burst-waits", file: "workers/clock.go",
		old: "fewer > 0 && c.tat > now",
		new: "fewer > 0 && false",
		by:  "./workers TestASmallerBurstHoldsNothingUp",
	},
	{
		name: "burst-of-a-key-not-handed-over", file: "workers/checkpoint.go",
		old: "c.Burst = h.pace.burst",
		new: "c.Burst = 0",
		by:  "./workers TestASmallerBurstHoldsNothingUp",
	},
	{
		name: "burst-of-a-policy-not-handed-over", file: "workers/tenure.go",
		old: "cmp.Or(c.Burst, in.handover.Burst)",
		new: "c.Burst",
		by:  "./workers TestASmallerBurstHoldsNothingUp",
	},
	{
		name: "late-start-keeps-burst", file: "workers/clock.go",
		old: "if c.due > c.idle {",
		new: "if false {",
		by:  "./workers TestALateStartLeavesNoBurst",
	},
	{
		name: "idle-credit-unlimited", file: "workers/clock.go",
		old: "if earned := now.add(-p.credit); c.due < earned {",
		new: "if earned := now.add(-p.credit - 10*time.Second); c.due < earned {",
		by:  "./workers TestClockLongRunRate",
	},
	{
		name: "rate-slow-by-a-hundredth", file: "workers/clock.go",
		old: "uint64(p.rate.Per))",
		new: "uint64(p.rate.Per)*101/100)",
		by:  "./workers TestClockLongRunRate",
	},
	{
		name: "fractions-lost", file: "workers/clock.go",
		old: "min(whole, uint64(forever)))), int64(rest)",
		new: "min(whole, uint64(forever)))), 0*int64(rest)",
		by:  "./workers TestClockLosesNoFraction",
	},
	{
		name: "letters-without-a-fence", file: "workers/letters.go",
		old: "if fence, now := d.gate(); now >= fence {",
		new: "if fence, now := d.gate(); now >= fence && now < 0 {",
		by:  "./workers TestAProcessThatStoodStillBuriesNoJobOfAnother",
	},
	{
		name: "refused-renewals-without-a-pause", file: "workers/lease.go",
		old: "again := max(now, p.sent.add(c.margin()))",
		new: "again := now",
		by:  "./workers TestRenewalsThatAreRefusedAtOnceAreSentAfterAPause",
	},
	{
		name: "catch-up-twice-as-fast", file: "workers/clock.go",
		old: "catchUp = 550",
		new: "catchUp = 250",
		by:  "./workers TestClockKeepsLaw2",
	},
	{
		name: "turns-without-weight", file: "workers/valve.go",
		old: "float64(j.Cost)/float64(b.weight)",
		new: "float64(j.Cost)",
		by:  "./workers TestTotalOutflowIsSharedInTurns",
	},
	{
		name: "turns-earned-while-idle", file: "workers/valve.go",
		old: "b.turns = max(b.turns, v.turns) // who had",
		new: "// who had",
		by:  "./workers TestWhoComesTakesNoTurnBeforeThoseWhoWait",
	},
	{
		name: "turns-earned-while-held", file: "workers/valve.go",
		old: "b.turns = v.turns + float64(j.Cost)",
		new: "b.turns += float64(j.Cost)",
		by:  "./workers TestWhoWasHeldBackHasMissedItsTurns",
	},
	{
		name: "turns-stand-still", file: "workers/valve.go",
		old: "v.turns = max(v.turns, b.turns) // who",
		new: "// who",
		by:  "./workers TestTotalOutflowIsSharedInTurns",
	},
	{
		name: "turns-forgotten-with-the-bucket", file: "workers/valve.go",
		old: "v.total != nil && ahead > 0 {",
		new: "false {",
		by:  "./workers TestTurnsAreRememberedWhileNothingWaits",
	},
	{
		name: "freedom-earns-a-burst", file: "workers/limits.go",
		old: "(before.pace == nil || before.paused && !b.paused)",
		new: "before.paused && !b.paused",
		by:  "./workers TestARateThatComesIsNoBurst",
	},
	{
		name: "pause-earns-a-burst", file: "workers/limits.go",
		old: "(before.pace == nil || before.paused && !b.paused)",
		new: "before.pace == nil",
		by:  "./workers TestAPauseEarnsNoBurst",
	},

	// Breakers.

	{
		name: "breaker-counts-a-job-twice", file: "workers/breaker.go",
		old: `if j.tried == 0 {
		b`,
		new: `{
		b`,
		by: "./workers TestAPoisonJobOpensNoBreaker",
	},
	{
		name: "breaker-of-all-counts-a-bucket-twice", file: "workers/breaker.go",
		old: "if !slices.Contains(v.suspects, b.key) {",
		new: `_ = slices.Contains(v.suspects, b.key)
	{`,
		by: "./workers TestAnOutageCountsNoAttemptsAndEndsWithoutAClump",
	},
	{
		name: "breaker-never-closes", file: "workers/breaker.go",
		old: `if v.breaker.asked(j) {
		v.recovered(now)`,
		new: "if v.breaker.asked(j) {",
		by:  "./workers TestAnOutageCountsNoAttemptsAndEndsWithoutAClump",
	},
	{
		name: "suspects-for-ever", file: "workers/breaker.go",
		old: `if !v.breaker.open {
		v.suspects = v.suspects[:0]
	}`,
		new: "",
		by:  "./workers TestBucketsInARowOpenTheBreakerOfAll",
	},
	{
		name: "breaker-closes-by-who-was-under-way", file: "workers/breaker.go",
		old: "return k.open && j.began > k.since",
		new: "return k.open",
		by:  "./workers TestWhatWasUnderWayIsNoProbe",
	},
	{
		name: "probe-hangs-the-breaker", file: "workers/breaker.go",
		old: "return max(k.at, k.probe.began.add(mostProbeWait))",
		new: "return never",
		by:  "./workers TestAProbeThatRunsForLongIsNotTheOnlyOne",
	},
	{
		name: "handed-over-probe-is-waited-for", file: "workers/breaker.go",
		old: "&& k.probe.bucket.part.state <= partitionLive",
		new: "",
		by:  "./workers TestAProbeThatWasHandedOverIsNotWaitedFor",
	},
	{
		name: "breaker-closes-with-a-burst", file: "workers/breaker.go",
		old: "b.pace.hold(&b.clock, now) // opening again is no burst",
		new: "_ = now",
		by:  "./workers TestABreakerThatClosesIsNoBurst",
	},
	{
		name: "same-job-probes-again", file: "workers/bucket.go",
		old: `if j.tried != k.tried {
		return j.tried < k.tried
	}`,
		new: "",
		by:  "./workers TestPoisonJobsAtTheHeadHoldTheirBucketUpForOneProbe",
	},
	{
		name: "breaker-not-handed-over", file: "workers/checkpoint.go",
		old: "if b.down() {",
		new: "if false {",
		by:  "./workers TestAnOpenBreakerIsHandedOver",
	},
	{
		name: "changed-policy-waits-for-the-probe", file: "workers/limits.go",
		old: "v.breaker.at = min(v.breaker.at, now)",
		new: "",
		by:  "./workers TestAChangedPolicyIsProbedAtOnce",
	},
	{
		name: "open-breaker-starts-all", file: "workers/valve.go",
		old: "if at := v.breaker.due(); at > now {",
		new: "if at := v.breaker.due(); false {",
		by:  "./workers TestAnOutageCountsNoAttemptsAndEndsWithoutAClump",
	},
	{
		name: "probe-from-the-busiest", file: "workers/breaker.go",
		old: `if !v.breaker.open {
		return first`,
		new: `if true {
		return first`,
		by: "./workers TestEveryBucketIsProbed",
	},

	// Workers elsewhere.

	{
		name: "claims-of-hanging-buckets", file: "workers/claims.go",
		old: "b.running <= t.running+1",
		new: "true",
		by:  "./workers TestClaimsAreNotForHangingBuckets",
	},
	{
		name: "refused-bucket-offered-again", file: "workers/claims.go",
		old: "c.crowded[key] = true",
		new: "c.crowded[key] = false",
		by:  "./workers TestWhatAWorkerRefusesHoldsNoOtherUp",
	},
	{
		name: "refused-bucket-gets-anothers-worker", file: "workers/claims.go",
		old: "!t.alone && b.running",
		new: "b.running",
		by:  "./workers TestWhatAWorkerRefusesHoldsNoOtherUp",
	},
	{
		name: "refused-bucket-stays-behind", file: "workers/claims.go",
		old: "if result == offerClaimed {",
		new: "if false {",
		by:  "./workers TestWhatAWorkerRefusesHoldsNoOtherUp",
	},
	{
		name: "claims-kept-when-closed", file: "workers/claims.go",
		old: "(all || c.held",
		new: "(c.held",
		by:  "./workers TestClaimsWhenStartsAreForbidden",
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
		old: "return s.Times[i] > oldest",
		new: "return s.Times[i] >= oldest",
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
		old: "times = times[max(0, int64(len(times))+n-l.Limit):]",
		new: "",
		by:  "./algorithms TestHistories",
	},
	{
		name: "log-refunds-the-oldest", file: "algorithms/slidinglog.go",
		old: "times[:max(0, int64(len(times))-n)]",
		new: "times[min(n, int64(len(times))):]",
		by:  "./algorithms TestRefundAtOnceLeavesNoTrace",
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
		old: "if receipt, found := rule.repeats.recall(repeat); found {",
		new: "if receipt, found := rule.repeats.recall(repeat); found && false {",
		by:  "./admission TestDoorWithQueue",
	},
	{
		name: "unknown-result-is-refunded", file: "admission/submit.go",
		old: "|| !errors.Is(err, queue.ErrUnavailable) && ctx.Err() == nil {",
		new: "|| true {",
		by:  "./admission TestDoorWithQueue",
	},
	{
		name: "refused-job-keeps-its-units", file: "admission/submit.go",
		old: "|| !errors.Is(err, queue.ErrUnavailable) && ctx.Err() == nil {",
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
		old: "limiter.Take(ctx, from, job.cost)",
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
		old:        "if was, is := have.Metadata[metaPartitions], want.Metadata[metaPartitions]; was != is {",
		new:        "if was, is := have.Metadata[metaPartitions], want.Metadata[metaPartitions]; false {",
		equivalent: "the subject transform holds the number too, and is compared as well",
	},
	{
		name: "capacity-lowered-below-what-is-held", file: "queue/stream.go",
		old: "depth > uint64(capacity) {",
		new: "false && depth > uint64(capacity) {",
		by:  "./queue TestLoweringIsRefusedWhileABucketIsDeeper",
	},
	{
		name: "capacity-lowered-with-an-open-door", file: "queue/stream.go",
		old: `if err := b.closeDoor(ctx, policy, have); err != nil {
		return err
	}`,
		new: "",
		by:  "./queue TestLoweringUnderFlowLosesNothing",
	},
	{
		name: "door-stays-closed", file: "queue/stream.go",
		old: "if openErr := b.updateStream(ctx, open); openErr != nil {",
		new: "if openErr := ctx.Err(); openErr != nil {",
		by:  "./queue TestADoorThatWasClosedForNothingIsOpenedAgain",
	},
	{
		name: "retired-with-jobs", file: "queue/stream.go",
		old: "if err != nil || state.Msgs > 0 {",
		new: "if err != nil || state.Msgs > 1<<40 {",
		by:  "./queue TestRetire",
	},
	{
		name: "lock-not-released", file: "queue/lock.go",
		old: "unlockErr := b.locks.Delete(held, policy, revision); unlockErr != nil {",
		new: "unlockErr := error(nil); unlockErr != nil || revision == 0 {",
		by:  "./queue TestALockIsReleasedWithItsChange",
	},
	{
		name: "own-bounds-take-all", file: "queue/storage.go",
		old: "scale := min(1, float64(part-least*int64(len(sharing)))/max(1, owned))",
		new: "scale := min(1, float64(part)/max(1, owned))",
		by:  "./queue TestDivide",
	},
	{
		name: "own-bounds-not-scaled", file: "queue/storage.go",
		old: "; scale < 1 {",
		new: "; false {",
		by:  "./queue TestDivide",
	},
	{
		name: "fuller-streams-not-counted", file: "queue/storage.go",
		old: "free -= max(x.bound, x.used)",
		new: "free -= x.bound",
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
		old: "level = rounded(max(level, least, 1))",
		new: "level = rounded(max(level, 1))",
		by:  "./queue TestDivide",
	},
	{
		name: "bounds-not-rounded", file: "queue/storage.go",
		old: "return n &^ (1<<max(0, bits.Len64(uint64(n))-5) - 1)",
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
		old: "foreign += max(info.Config.MaxBytes, x.used)",
		new: "foreign += 0 * max(info.Config.MaxBytes, x.used)",
		by:  "./queue TestStreamsOfOthersLeaveLessToShare",
	},
	{
		name: "raised-before-lowered", file: "queue/storage.go",
		old: "[]bool{true, false}",
		new: "[]bool{false, true}",
		by:  "./queue TestRationObeysPolicies",
	},
	{
		name: "partition-of-another-hash", file: "queue/subject.go",
		old: "h = (h ^ uint32(subject[i])) * prime",
		new: "h = h*prime ^ uint32(subject[i])",
		by:  "./queue TestPartitionIsTheServers",
	},
	{
		name: "keys-collide", file: "queue/key.go",
		old: "c != '>' && c != '%'",
		new: "c != '>'",
		by:  "./queue TestEncodeKey",
	},

	// Backlogs: what is delivered, acknowledged, astray.

	{
		name: "gap-unnoticed", file: "queue/pull.go",
		old: "if meta.consumerSeq != p.received+1 {",
		new: "if false {",
		by:  "./queue TestAGapInDeliveriesBreaks",
	},
	{
		name: "lost-tail-unnoticed", file: "queue/pull.go",
		old: "if p.promised > p.received {",
		new: "if false {",
		by:  "./queue TestHeartbeatShowsLostDeliveries",
	},
	{
		name: "silence-unnoticed", file: "queue/pull.go",
		old: "return nil, errSilence",
		new: "continue",
		by:  "./queue TestSilenceBreaks",
	},
	{
		name: "reconnect-unnoticed", file: "queue/pull.go",
		old: `case <-p.status:
			return nil, errReconnected`,
		new: `case <-p.status:
			continue`,
		by: "./queue TestBacklogBreaks",
	},
	{
		name: "ended-pulls-not-renewed", file: "queue/pull.go",
		old: "p.open -= rest",
		new: "_ = rest",
		by:  "./queue TestPullsThatEndTogetherAreRenewed",
	},
	{
		name: "domain-of-an-ack-subject", file: "queue/pull.go",
		old: "skip = 4",
		new: "skip = 3",
		by:  "./queue TestParseAckSubject",
	},
	{
		name: "old-consumer-stays", file: "queue/backlog.go",
		old: "if err := l.deleteConsumer(ctx, name); err != nil {",
		new: "if err := error(nil); err != nil {",
		by:  "./queue TestTakeoverHandsOverEverythingUnacknowledged",
	},
	{
		name: "own-epochs-consumer-is-taken-over", file: "queue/backlog.go",
		old: "if err := l.deleteConsumer(ctx, name); err != nil {",
		new: `if epoch == l.o.Epoch {
				continue
			}
			if err := l.deleteConsumer(ctx, name); err != nil {`,
		by: "./queue TestOpeningTheSameEpochBeginsAnew",
	},
	{
		name: "newer-epoch-evicted", file: "queue/backlog.go",
		old: "case epoch > l.o.Epoch:",
		new: "case false:",
		by:  "./queue TestTakeoverHandsOverEverythingUnacknowledged",
	},
	{
		name: "other-partitions-evicted", file: "queue/backlog.go",
		old: "!ours || partition != l.o.Partition:",
		new: "!ours || partition < 0:",
		by:  "./queue TestPartitionsAreOpenedSideBySide",
	},
	{
		name: "filter-for-one-partition", file: "queue/backlog.go",
		old: `if l.o.Partitions == 1 {
		return
	}`,
		new: "",
		by:  "./queue TestConsumerOfTheContract",
	},
	{
		name: "ack-wait-of-a-minute", file: "queue/backlog.go",
		old: "ackWait = 365 * 24 * time.Hour",
		new: "ackWait = time.Minute",
		by:  "./queue TestConsumerOfTheContract",
	},
	{
		name: "ack-pending-bounded", file: "queue/backlog.go",
		old: "MaxAckPending: -1",
		new: "MaxAckPending: 1000",
		by:  "./queue TestConsumerOfTheContract",
	},
	{
		name: "bodies-for-ever", file: "queue/backlog.go",
		old: "state.Bytes/state.Msgs > leanBytes",
		new: "false",
		by:  "./queue TestLeanBacklog",
	},
	{
		name: "acks-not-repeated", file: "queue/acks.go",
		old: "again = append(again, seq)",
		new: "",
		by:  "./queue TestAcknowledgementsAreRepeated",
	},
	{
		name: "acks-repeated-while-slow", file: "queue/acks.go",
		old: "(silent || at.Before(a.upTo))",
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
		name: "unconfirmed-not-counted", file: "queue/acks.go",
		old: "return len(a.waiting) + len(a.sent)",
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
		name: "sweep-of-other-partitions", file: "queue/sweep.go",
		old: "if len(filters) == 1 {",
		new: "if false {",
		by:  "./queue TestASweepEndsAfterAllThatWasStored",
	},
	{
		name: "sweep-asks-for-what-came", file: "queue/sweep.go",
		old: "l.filters, handed+1)",
		new: "l.filters, handed)",
		by:  "./queue TestASweepEndsThoughTheLastJobLiesElsewhere",
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
		by:  "./queue TestWhatIsGoneDoesNotComeAfterTheSweep",
	},
	{
		name: "doubtful-sweep-believed", file: "queue/sweep.go",
		old: "err = errUnswept // the",
		new: "err = ErrNotFound // the",
		by:  "./queue TestWhatIsGoneDoesNotComeAfterTheSweep",
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
		name: "compare-and-set-forgets", file: "queue/table.go",
		old: `if expected != nil {
		header`,
		new: `if false {
		header`,
		by: "./queue TestTableCompareAndSet",
	},
	{
		name: "deleted-is-found", file: "queue/table.go",
		old: "if err == nil && r.Deleted {",
		new: "if false {",
		by:  "./queue TestTableCompareAndSet",
	},
	{
		name: "ended-of-another-stream", file: "queue/repeats.go",
		old: "if e.Accepted.Before(info.Created) {",
		new: "if _ = info.Created; false {",
		by:  "./queue TestARepeatIsToldWhatBecameOfItsJob",
	},
	{
		name: "dead-counts-as-done", file: "queue/repeats.go",
		old: "case e.How == EndDone:",
		new: "case e.How == EndDone, e.How == EndDead:",
		by:  "./queue TestARepeatIsToldWhatBecameOfItsJob",
	},
	{
		name: "replay-not-followed", file: "queue/repeats.go",
		old: `r.Seq, replays = e.Job, replays+1
				continue`,
		new: "return r, nil",
		by:  "./queue TestARepeatIsToldWhatBecameOfItsJob",
	},
	{
		name: "other-payload-is-a-repeat", file: "queue/repeats.go",
		old: `case e.Sum != "" && e.Sum != sum:`,
		new: "case false:",
		by:  "./queue TestAnotherPayloadIsNoRepeat",
	},
	{
		name: "other-payload-of-a-waiting-job", file: "queue/repeats.go",
		old: "if PayloadSum(stored.Header, stored.Body) != sum {",
		new: `if PayloadSum(stored.Header, stored.Body) == "" {`,
		by:  "./queue TestAnotherPayloadIsNoRepeat",
	},
	{
		name: "sum-without-the-method", file: "queue/ended.go",
		old: "[]string{HeaderMethod, HeaderPath}",
		new: "[]string{HeaderPath}",
		by:  "./queue TestPayloadSumTellsPayloadsApart",
	},
	{
		name: "sum-runs-fields-together", file: "queue/ended.go",
		old: "hash.Write(binary.AppendUvarint(nil, uint64(len(value))))",
		new: "_ = binary.AppendUvarint",
		by:  "./queue TestPayloadSumTellsPayloadsApart",
	},
	{
		name: "letter-without-its-end", file: "queue/deadletter.go",
		old: "return discarded, b.NoteEnded(ctx, d.Policy, d.Seq, e)",
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
		old: "metaCount(info.Config.Metadata, metaDiscarded)+n",
		new: "metaCount(info.Config.Metadata, metaDiscarded)",
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
		name: "roster-forgets-nobody", file: "queue/roster.go",
		old: "now.Sub(seen) > r.lease",
		new: "now.Before(seen)",
		by:  "./queue TestRosterCountsTheLiving",
	},
	{
		name: "roster-believes-its-silence", file: "queue/roster.go",
		old: `case !r.heard:
			r.seen[id] = now`,
		new: "",
		by:  "./queue TestRosterGivesOthersTimeAfterItWasCutOff",
	},
	{
		name: "outage-never-ends", file: "queue/outage.go",
		old: "delete(o.streams, policy)",
		new: "",
		by:  "./queue TestAKnownOutageOfJetStreamFailsFastAndOneProbeEndsIt",
	},

	// Questions.

	{
		name: "walk-goes-astray-when-a-bucket-goes", file: "workers/walk.go",
		old: "if hole < w.left {",
		new: "if false {",
		by:  "./workers TestAWalkVisitsEachBucketOnce",
	},
	{
		name: "forecast-sums-nothing", file: "workers/forecast.go",
		old: "f.fixed[i] += f.fixed[i-1]",
		new: "f.fixed[i] += 0",
		by:  "./workers TestAForecastIsNearWhatAWalkTells",
	},
	{
		name: "forecast-of-endless-buckets", file: "workers/forecast.go",
		old: "f.line(last, last*weight, -weight)",
		new: "_ = last",
		by:  "./workers TestAForecastIsNearWhatAWalkTells",
	},
	{
		name: "forecast-counts-the-asking-bucket", file: "workers/forecast.go",
		old: "before -= min(",
		new: "before -= 0 * min(",
		by:  "./workers TestAForecastCountsTheAskingBucketOnce",
	},
	{
		name: "expected-through-a-breaker", file: "workers/forecast.go",
		old: "b.blocked() || v.breaker.open || b.down() || b.part.state",
		new: "b.blocked() || b.down() || b.part.state",
		by:  "./workers TestNobodyCanTellWhileABreakerIsOpen",
	},
	{
		name: "expected-through-a-buckets-breaker", file: "workers/forecast.go",
		old: "b.blocked() || v.breaker.open || b.down() || b.part.state",
		new: "b.blocked() || v.breaker.open || b.part.state",
		by:  "./workers TestNobodyCanTellWhileABreakerIsOpen",
	},
	{
		name: "position-counts-jobs-not-slots", file: "workers/forecast.go",
		old: "times(slots+others, v.total.interval)",
		new: "times(others, v.total.interval)",
		by:  "./workers TestExpectedStartsUnderATotalCountSlots",
	},
	{
		name: "room-at-once", file: "workers/forecast.go",
		old: "wait = max(wait, v.startable(b).since(now))",
		new: "_ = b",
		by:  "./workers TestRoom",
	},
}
