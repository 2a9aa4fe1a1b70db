package valve

import (
	"fmt"
	"os"
	"reflect"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if !reflect.ValueOf(nothingNear).Elem().IsZero() {
		fmt.Printf("buckets that have nothing near share %+v\n", nothingNear)
		code = 1
	}
	os.Exit(code)
}
