// Package envoytest compares package envoy and its service with Envoy's API types, and with
// envoyproxy/ratelimit's reading of the same files. It is a separate module, because users of the
// packages do not need them.
package envoytest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	reference "github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/limiter"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
	gostats "github.com/lyft/gostats"
	"gopkg.in/yaml.v2"

	"github.com/penstock-mq/penstock/internal/server/envoy"
)

func theirs(files []string) (c reference.RateLimitConfig, err error) {
	defer func() {
		if told := recover(); told != nil {
			err = fmt.Errorf("%v", told)
		}
	}()
	var all []reference.RateLimitConfigToLoad
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		all = append(all, reference.RateLimitConfigToLoad{Name: name,
			ConfigYaml: reference.ConfigFileContentToYaml(name, string(text))})
	}
	manager := stats.NewStatManager(gostats.NewStore(gostats.NewNullSink(), false),
		settings.Settings{})
	return reference.NewRateLimitConfigImpl(all, manager, true), nil
}

type both struct {
	t      *testing.T
	ours   *envoy.Config
	theirs reference.RateLimitConfig
	keys   limiter.CacheKeyGenerator
	// descriptors that share a count in one share it in the other
	toOurs, toTheirs map[string]string
	found            int
}

func compare(t *testing.T, files ...string) *both {
	t.Helper()
	ours, err := envoy.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	their, err := theirs(files)
	if err != nil {
		t.Fatalf("they refuse what is accepted here: %v", err)
	}
	return &both{t: t, ours: ours, theirs: their, keys: limiter.NewCacheKeyGenerator(""),
		toOurs: map[string]string{}, toTheirs: map[string]string{}}
}

func (b *both) find(domain string, words ...string) {
	b.t.Helper()
	asked := &common.RateLimitDescriptor{}
	for i := 0; i+1 < len(words); i += 2 {
		asked.Entries = append(asked.Entries,
			&common.RateLimitDescriptor_Entry{Key: words[i], Value: words[i+1]})
	}
	want := b.theirs.GetLimit(b.t.Context(), domain, asked)
	got, counted, name := b.ours.Find(domain, asked.Entries)
	if (got == nil) != (want == nil) {
		b.t.Errorf("%s %q: %+v, they have %+v", domain, words, got, want)
	}
	if got == nil || want == nil {
		return
	}
	b.found++
	if got.Rate.RequestsPerUnit != want.Limit.RequestsPerUnit || got.Rate.Unit != want.Limit.Unit ||
		got.Unlimited != want.Unlimited || got.Shadow != want.ShadowMode ||
		got.Quota != want.QuotaMode ||
		got.Rate.Name != want.Name || !slices.Equal(got.Replaces, want.Replaces) {
		b.t.Errorf("%s %q: %+v, they have %+v", domain, words, got, want)
	}
	if want.Unlimited {
		return
	}
	if name != want.FullKey && isJuly {
		b.t.Errorf("%s %q: hits are named %s, they have %s", domain, words, name, want.FullKey)
	}
	theirs := b.keys.GenerateCacheKey(domain, asked, want, 0).Key
	// the unit distinguishes windows, which differ from ours
	theirs, counted = theirs+got.Rate.Unit.String(), domain+" "+counted
	if before, known := b.toOurs[theirs]; known && before != counted {
		b.t.Errorf("%s %q: counted as %q, and as %q, which they count together", domain, words,
			counted, before)
	}
	if before, known := b.toTheirs[counted]; known && before != theirs {
		b.t.Errorf("%s %q: counted as %q, which they tell apart", domain, words, counted)
	}
	b.toOurs[theirs], b.toTheirs[counted] = counted, theirs
}

// Files of envoyproxy/ratelimit's tests are accepted or refused as there, and descriptors of their
// words find the same limits.
func TestFilesOfTheReferenceMeanTheSame(t *testing.T) {
	list := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/envoyproxy/ratelimit")
	dir, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(dir))
	var files []string
	for _, pattern := range []string{"test/config/*.yaml", "examples/ratelimit/config/*.yaml",
		"test/integration/runtime/current/ratelimit/*.yaml",
		"test/integration/runtime/current/ratelimit/config/*.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	accepted := 0
	for _, name := range files {
		_, ours := envoy.Load([]string{name})
		_, their := theirs([]string{name})
		if (ours == nil) != (their == nil) {
			t.Errorf("%s: %v; they say %v", name, ours, their)
		}
		if ours != nil {
			t.Logf("%s is refused:\n%v\nthey say %v", filepath.Base(name), ours, their)
			continue
		}
		accepted++
		b := compare(t, name)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var tree reference.YamlRoot
		if err := yaml.Unmarshal(text, &tree); err != nil {
			t.Fatal(err)
		}
		b.walk(tree.Domain, tree.Descriptors, nil)
		if len(tree.Descriptors) > 0 && b.found == 0 {
			t.Errorf("%s: nothing was found", name)
		}
	}
	if accepted < 7 || len(files)-accepted < 10 {
		t.Errorf("%d of %d files were accepted", accepted, len(files))
	}
	b := compare(t, filepath.Join(root, "test/config/merge_domain_key1.yaml"),
		filepath.Join(root, "test/config/merge_domain_key2.yaml"))
	b.find("test-domain", "key1", "value1")
	b.find("test-domain", "key2", "value2")
	if b.found != 2 {
		t.Error("domains do not add up")
	}
}

// Envoy's API has multiples of units, files of limits do not.
func TestFilesHaveNoMultiplierOfUnits(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file.yaml")
	if err := os.WriteFile(name, []byte("domain: d\ndescriptors:\n- key: a\n  rate_limit: "+
		"{unit: second, requests_per_unit: 5, unit_multiplier: 30}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, ours := envoy.Load([]string{name})
	_, their := theirs([]string{name})
	if ours == nil || their == nil ||
		!strings.Contains(ours.Error(), "unit_multiplier: is not allowed in files") ||
		!strings.Contains(their.Error(), "unknown key 'unit_multiplier'") {
		t.Errorf("%v; they say %v", ours, their)
	}
}

// walk looks up every descriptor of a file, and similar ones.
func (b *both) walk(domain string, descriptors []reference.YamlDescriptor, path []string) {
	b.find(domain, path...)
	b.find("another", path...)
	for _, d := range descriptors {
		stem := strings.TrimSuffix(d.Value, "*")
		for _, value := range []string{d.Value, stem, stem + "1", stem + "/x", "x" + stem, "other",
			"", d.Value + "*"} {
			on := append(slices.Clip(path), d.Key, value)
			b.find(domain, append(slices.Clip(on), "more", "of it")...)
			b.walk(domain, d.Descriptors, on)
		}
	}
}

func drawn(draw *rand.Rand, depth int) (list []reference.YamlDescriptor) {
	keys, values := []string{"a", "b", "ab"}, []string{"", "", "x", "xy", "x*", "xy*", "*"}
	if isJuly {
		values = append(values, "x*y", "*y", "x*y*z")
	}
	for range draw.IntN(5) {
		d := reference.YamlDescriptor{Key: keys[draw.IntN(len(keys))],
			Value:      values[draw.IntN(len(values))],
			ShadowMode: draw.IntN(4) == 0, QuotaMode: draw.IntN(6) == 0,
			DetailedMetric: draw.IntN(4) == 0, ValueToMetric: draw.IntN(4) == 0}
		d.ShareThreshold = strings.Contains(d.Value, "*") && draw.IntN(2) == 0
		same := func(other reference.YamlDescriptor) bool {
			return other.Key == d.Key && other.Value == d.Value
		}
		if slices.ContainsFunc(list, same) {
			continue
		}
		if draw.IntN(3) > 0 {
			d.RateLimit = &reference.YamlRateLimit{RequestsPerUnit: draw.Uint32N(9),
				Unit: []string{"second", "Minute", "HOUR", "day", "week", "month",
					"year"}[draw.IntN(7)]}
			if draw.IntN(5) == 0 {
				d.RateLimit = &reference.YamlRateLimit{Unlimited: true}
			}
		}
		if depth > 0 {
			d.Descriptors = drawn(draw, depth-1)
		}
		list = append(list, d)
	}
	return list
}

func TestDrawnFilesMeanTheSame(t *testing.T) {
	found := 0
	for seed := range uint64(300) {
		draw := rand.New(rand.NewPCG(seed, 1))
		text, err := yaml.Marshal(reference.YamlRoot{Domain: "d", Descriptors: drawn(draw, 2)})
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "drawn.yaml")
		// an omitted value becomes null or an empty text
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		b := compare(t, name)
		for range 300 {
			var words []string
			for range 1 + draw.IntN(3) {
				words = append(words, []string{"a", "b", "ab", "c"}[draw.IntN(4)],
					[]string{"", "x", "xy", "xyz", "*", "x*", "y", "x1y2z"}[draw.IntN(8)])
			}
			b.find("d", words...)
		}
		if found += b.found; t.Failed() {
			t.Fatalf("seed %d:\n%s", seed, text)
		}
	}
	if found < 3000 {
		t.Errorf("only %d descriptors have a limit", found)
	}
}
