package core

import (
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/pace"
	"github.com/penstock-mq/penstock/workers/internal/record"
)

func leaseRecord(revision uint64, l record.Lease) Record {
	l.V = record.Version
	return Record{Exists: true, Value: record.Encode(l), Revision: revision, Stored: originWall}
}

// Watches and reads deliver records in any order, and more than once.
func TestARecordIsKnownByItsNewestRevision(t *testing.T) {
	var k known[record.Lease]
	second := leaseRecord(2, record.Lease{Host: "b"})
	unread := Record{Exists: true, Value: []byte("{"), Revision: 4}
	for _, x := range []struct {
		name    string
		found   Record
		changed bool
		host    string
		base    uint64
		bad     bool
	}{
		{"none is missed", Record{}, false, "", 0, false},
		{"the first one", second, true, "b", 2, false},
		{"an earlier one", leaseRecord(1, record.Lease{Host: "a"}), false, "b", 2, false},
		{"it has vanished", Record{}, false, "b", 0, false},
		{"it is back", second, false, "b", 2, false},
		{"it is deleted", Record{Revision: 3, Stored: originWall}, true, "", 0, false},
		{"it cannot be read", unread, true, "", 4, true},
		{"it is good again", leaseRecord(5, record.Lease{Host: "c"}), true, "c", 5, false},
	} {
		changed := k.see(x.found, origin)
		if changed != x.changed || k.record.Host != x.host || k.base() != x.base ||
			k.damaged != nil != x.bad {
			t.Errorf("%s: %t, known are %+v", x.name, changed, k)
		}
	}
}

func TestAPeerLivesForALeaseAfterItsLastSign(t *testing.T) {
	p := &peers{all: map[string]*peer{}, lease: simulatedLease}
	of := &shares{all: map[string]*share{}}
	var out actions
	signs := func(revision uint64, l record.Lease, now pace.Instant) (died, anew bool) {
		return p.see("a", leaseRecord(revision, l), now)
	}
	if died, anew := signs(1, record.Lease{Policies: []string{"api"}}, origin); died || !anew ||
		!p.live("a", origin) || !p.run("api", origin) || p.run("other", origin) {
		t.Fatalf("a new one: died %t, anew %t, %+v", died, anew, p.all["a"])
	}
	if _, anew := signs(2, record.Lease{Policies: []string{"api"}}, origin.Add(second)); anew {
		t.Error("partitions are distributed anew after each renewal")
	}
	late := origin.Add(second + simulatedLease)
	p.expire(of.names, &out, late-1)
	if len(out.puts) > 0 || p.live("a", late-1) {
		t.Errorf("%d tombstones before its lease ends; live %t", len(out.puts), p.live("a", late))
	}
	p.expire(of.names, &out, late)
	p.expire(of.names, &out, late)
	if len(out.puts) != 1 || out.puts[0].Revision != 2 {
		t.Fatalf("it is buried by %+v", out.puts)
	}
	died, anew := p.see("a", out.puts[0].stored(3, late), late)
	if !died || !anew || p.live("a", late) {
		t.Errorf("its tombstone: died %t, anew %t", died, anew)
	}
	gone := late.Add(10*simulatedLease + 1)
	of.add(&share{policy: "api", ownership: ownership{exists: true,
		record: record.Owner{Owner: "a"}}})
	if p.expire(of.names, &out, gone); len(out.deletes) > 0 {
		t.Error("its tombstone is removed though a record names it")
	}
	of.order = nil
	if p.expire(of.names, &out, gone); len(out.deletes) != 1 || len(p.all) > 0 {
		t.Errorf("its tombstone stays: %d are known", len(p.all))
	}
}
