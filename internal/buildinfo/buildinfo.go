// Package buildinfo says which version of Penstock runs.
package buildinfo

import (
	"regexp"
	"runtime/debug"
	"strings"
)

// number is the version of a program that was not built from a tagged module.
const number = "0.1.0"

// Version is the program's version as semantic versioning spells it, without a "v": that of its
// module, or the next one with the commit it was built from, such as "0.1.0+a9585c3". A changed
// tree adds ".dirty".
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return number
	}
	return version(info)
}

var (
	semantic = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	// pseudo is a version that Go makes of a commit without a tag.
	pseudo = regexp.MustCompile(`[.-]\d{14}-[0-9a-f]{12}`)
)

func version(info *debug.BuildInfo) string {
	setting := map[string]string{}
	for _, s := range info.Settings {
		setting[s.Key] = s.Value
	}
	revision := setting["vcs.revision"]
	made := info.Main.Version
	if semantic.MatchString(made) && (revision == "" || !pseudo.MatchString(made)) {
		return strings.TrimPrefix(made, "v")
	}
	if revision == "" {
		return number
	}
	suffix := "+" + revision[:min(7, len(revision))]
	if setting["vcs.modified"] == "true" {
		suffix += ".dirty"
	}
	return number + suffix
}
