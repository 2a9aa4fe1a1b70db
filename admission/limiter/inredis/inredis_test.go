package inredis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/penstock-mq/penstock/admission/limiter/inredis"
	"github.com/penstock-mq/penstock/algorithms"
	"github.com/penstock-mq/penstock/policy"
)

type breaker struct{}

func (breaker) Allow() (done func(error), err error) { return func(error) {}, nil }

func TestEveryAlgorithmHasAScript(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{ContextTimeoutEnabled: true})
	defer rdb.Close()
	place := inredis.New(rdb, inredis.Options{}).Open(breaker{})
	rate := algorithms.Rate{Count: 1, Per: time.Second}
	for _, a := range policy.Algorithms() {
		l := policy.Limit{Name: "l", Rule: policy.Rule{Algorithm: a, Capacity: 5, Burst: 1,
			Limit: 5, Window: policy.Duration(time.Minute), Outflow: rate, Refill: rate}}
		for _, p := range []policy.Policy{{Name: "p"}, {Name: "p", Limits: policy.Limits{l}}} {
			if place.Store(p, l, l.AtDoor()) == nil {
				t.Errorf("%s: no store", a)
			}
		}
	}
}
