package main

import (
	"reflect"
	"runtime"
	"testing"
)

var small = stream{requests: 50_000, windows: 50, keys: 1000, seed: 1}

func TestSameSeedSameResult(t *testing.T) {
	for _, kind := range allTraffic {
		first := small.measure(kind)
		if again := small.measure(kind); !reflect.DeepEqual(first, again) {
			t.Errorf("%s: played twice, it comes out twice", kind.name)
		}
		before := runtime.GOMAXPROCS(1)
		alone := small.measure(kind)
		runtime.GOMAXPROCS(before)
		if !reflect.DeepEqual(first, alone) {
			t.Errorf("%s: one processor comes to another result", kind.name)
		}
		other := small
		other.seed++
		if reflect.DeepEqual(first, other.measure(kind)) {
			t.Errorf("%s: another seed comes to the same result", kind.name)
		}
	}
}

func TestTalliesAddUp(t *testing.T) {
	for _, kind := range allTraffic {
		o := small.measure(kind)
		if o.requests != small.requests {
			t.Errorf("%s: %d requests", kind.name, o.requests)
		}
		for i, limit := range limits {
			whole := o.byLimit[i]
			if whole.requests != small.requests || whole.keys != int64(small.keys) {
				t.Errorf("%s, limit %d: %d requests of %d keys", kind.name, limit, whole.requests,
					whole.keys)
			}
			var sum tally
			for _, part := range o.byLoad[i] {
				sum.add(part)
			}
			if sum != whole {
				t.Errorf("%s, limit %d: the parts are %+v, the whole %+v", kind.name, limit, sum,
					whole)
			}
		}
	}
}

func TestOnlyNearIsWrong(t *testing.T) {
	var j judge
	for _, kind := range allTraffic {
		for rank, n := range small.shares() {
			j.load(small.arrivals(nil, kind, rank, n))
			for _, limit := range limits {
				r := j.decide(limit, rank)
				if r.wrong[samePast].sum() > r.near {
					t.Fatalf("%s, key %d, limit %d: %+v", kind.name, rank, limit, r)
				}
				if r.near == 0 && r.wrong != [views]wrong{} {
					t.Fatalf("%s, key %d, limit %d: %+v without coming near", kind.name, rank,
						limit, r)
				}
			}
		}
	}
}

func TestLoadParts(t *testing.T) {
	for _, c := range []struct {
		requests int64
		want     string
	}{{0, "0.00 to 0.25"}, {124, "0.00 to 0.25"}, {125, "0.25 to 0.50"}, {500, "0.90 to 1.10"},
		{549, "0.90 to 1.10"},
		{550, "1.10 to 1.50"}, {4999, "5.00 to 10.00"}, {5000, "from 10.00"},
		{1 << 40, "from 10.00"}} {
		if got := loadName(loadOf(c.requests, 50, 10)); got != c.want {
			t.Errorf("%d requests in 50 windows, limit 10: %s, want %s", c.requests, got, c.want)
		}
	}
}

func TestWorstKeyHasTheLargestShare(t *testing.T) {
	key := func(rank int, requests, wrongs int64) keyResult {
		return keyResult{rank: rank, requests: requests,
			wrong: [views]wrong{samePast: {allowed: wrongs}}}
	}
	var sum tally
	for _, r := range []keyResult{key(3, 1000, 100), key(1, 400, 60), key(2, 800, 120),
		key(0, 399, 399), key(4, 5000, 0)} {
		sum.addKey(r, 10, 100)
	}
	if sum.worst.rank != 1 {
		t.Errorf("the worst key is %+v, want that of rank 1: 15 %%, and 0 asks too seldom",
			sum.worst)
	}
}
