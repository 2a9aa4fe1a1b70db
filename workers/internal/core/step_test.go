package core

import (
	"testing"
	"time"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
	"github.com/penstock-mq/penstock/workers/internal/valve"
)

// What a drainer does about a partition, by the partition's state and the drainer's.
func TestMoves(t *testing.T) {
	const now = origin
	of := func(id string) ownership {
		return ownership{exists: true, revision: 1, stored: originWall,
			record: record.Owner{Owner: id}}
	}
	part := func(change func(p *partition)) *partition {
		p := &partition{Part: &valve.Part{}}
		change(p)
		return p
	}
	live := part(func(*partition) {})
	p := &peers{all: map[string]*peer{}, lease: simulatedLease}
	p.see("heir", leaseRecord(1, record.Lease{Policies: []string{"api"}}), now)
	p.see("dead", leaseRecord(2, record.Lease{Tombstone: true}), now)
	p.see("late", leaseRecord(3, record.Lease{}), now-pace.Instant(simulatedLease))
	long := now - pace.Instant(time.Minute)
	for _, x := range []struct {
		name    string
		s       share
		leaving bool
		want    move
	}{
		{"free, of another", share{able: true, favourite: "heir"}, false, moveWait},
		{"free, of another who leaves it", share{able: true, favourite: "heir", since: long}, false,
			moveTake},
		{"free, of ours", share{able: true, favourite: "me"}, false, moveTake},
		{"free, while this process leaves", share{able: true, favourite: "me"}, true, moveWait},
		{"free, with outcomes to report", share{able: true, since: long, unsettled: 1}, true,
			moveTake},
		{"free, of no valve here", share{favourite: "me"}, false, moveNone},
		{"free, but not yet", share{able: true, favourite: "me", actAt: now + 1}, false, moveWait},
		{"of a live owner", share{able: true, favourite: "me", ownership: of("heir")}, false,
			moveNone},
		{"of a late owner", share{able: true, favourite: "me", ownership: of("late")}, false,
			moveNone},
		{"of a dead owner", share{able: true, favourite: "me", ownership: of("dead")}, false,
			moveTake},
		{"taken late", share{able: true, ownership: of("me")}, false, moveTakeUp},
		{"taken late, of no valve here", share{ownership: of("me")}, false, moveGiveBack},
		{"a taking is sent", share{able: true, state: shareTaking}, false, moveWait},
		{"a release is sent", share{able: true, state: shareReleasing}, false, moveWait},
		{"a release was not stored", share{able: true, state: shareReleasing, unwritten: &Put{}},
			false, moveRepeat},
		{"owned", share{able: true, state: shareOwned, part: live}, false, moveNone},
		{"owned, of another", share{able: true, state: shareOwned, part: live, since: long,
			favourite: "heir"}, false, moveRelease},
		{"owned, of another, just taken", share{able: true, state: shareOwned, part: live,
			since: now, favourite: "heir"}, false, moveWait},
		{"owned, of another who is late", share{able: true, state: shareOwned, part: live,
			since: long, favourite: "late"}, false, moveWait},
		{"owned, while this process leaves", share{able: true, state: shareOwned, part: live,
			favourite: "heir"}, true, moveRelease},
		{"being opened", share{able: true, state: shareOwned,
			part: part(func(p *partition) { p.fresh = true })}, false, moveWait},
		{"its backlog is broken", share{able: true, state: shareOwned,
			part: part(func(p *partition) { p.broken = true })}, false, moveTake},
		{"it could not be opened", share{able: true, state: shareOwned,
			part: part(func(p *partition) { p.unopened = true })}, false, moveOpen},
		{"it could not be opened again, with outcomes to report", share{able: true,
			state: shareOwned, unsettled: 1,
			part: part(func(p *partition) { p.unopened, p.Quiesced = true, true })}, true,
			moveOpen},
		{"it could not be opened in time", share{policy: "api", able: true, state: shareOwned,
			failures: mostFailures,
			part:     part(func(p *partition) { p.unopened, p.fresh = true, true })}, false,
			moveGiveBack},
	} {
		v := view{now: now, self: "me", leaving: x.leaving, steady: true, peers: p}
		if got := x.s.next(v); got != x.want {
			t.Errorf("%s: move %d, want %d", x.name, got, x.want)
		}
	}
}
