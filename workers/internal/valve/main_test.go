package valve

import (
	"fmt"
	"os"
	"reflect"
	"testing"
)

// TestMain looks after all tests whether what buckets share was written to.
func TestMain(m *testing.M) {
	code := m.Run()
	if !reflect.ValueOf(nothingNear).Elem().IsZero() {
		fmt.Printf("buckets that have nothing near share %+v\n", nothingNear)
		code = 1
	}
	os.Exit(code)
}
