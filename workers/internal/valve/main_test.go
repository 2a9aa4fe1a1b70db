package valve

import (
	"fmt"
	"os"
	"reflect"
	"testing"

	"github.com/penstock-mq/penstock/workers/internal/calls"
)

func TestMain(m *testing.M) {
	code := m.Run()
	empty := &near{callers: &calls.Line[*heldJob]{}}
	if !reflect.DeepEqual(nothingNear, empty) {
		fmt.Printf("buckets that have nothing near share %+v\n", nothingNear)
		code = 1
	}
	os.Exit(code)
}

// begin begins a checkpoint of no bucket.
func begin(p *Part) { p.Gather().Walk.Stop() }
