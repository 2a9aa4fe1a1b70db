// Package buildinfo returns the version of Penstock.
package buildinfo

import (
	"regexp"
	"runtime/debug"
	"strings"
)

// of builds without a tagged module
const number = "0.1.0"

// Version returns the semantic version: the module's, or the next one with the commit, such as
// "0.1.0+a9585c3", and ".dirty" for uncommitted changes.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return number
	}
	return version(info)
}

var (
	semantic = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)
	// Go's versions of commits without a tag
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
