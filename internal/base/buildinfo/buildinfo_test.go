package buildinfo

import (
	"runtime/debug"
	"testing"
)

func TestVersion(t *testing.T) {
	commit := []debug.BuildSetting{{Key: "vcs.revision", Value: "a9585c3f0123"}}
	changed := append(commit, debug.BuildSetting{Key: "vcs.modified", Value: "true"})
	for _, test := range []struct {
		module   string
		settings []debug.BuildSetting
		want     string
	}{
		{"v1.2.3", commit, "1.2.3"},
		{"v1.2.3-rc.1", nil, "1.2.3-rc.1"},
		{"v0.0.0-20261122080000-a9585c3f0123", nil, "0.0.0-20261122080000-a9585c3f0123"},
		{"v0.1.1-0.20261122080000-a9585c3f0123+dirty", changed, "0.1.0+a9585c3.dirty"},
		{"(devel)", commit, "0.1.0+a9585c3"},
		{"(devel)", nil, "0.1.0"},
		{"", changed, "0.1.0+a9585c3.dirty"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: test.module}, Settings: test.settings}
		if got := version(info); got != test.want {
			t.Errorf("%q: got %q, want %q", test.module, got, test.want)
		}
	}
	if Version() == "" {
		t.Error("no version")
	}
}
