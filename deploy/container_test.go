package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/penstock-mq/penstock/config"
)

// dockerfile checks that an image contains the files of make image, and that it does not run as
// root.
func dockerfile(t *testing.T, text []byte) {
	script, err := os.ReadFile("../scripts/image")
	if err != nil {
		t.Fatal(err)
	}
	instructions := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if name, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			instructions[name] = append(instructions[name], rest)
		}
	}
	if !slices.Equal(instructions["FROM"], []string{"scratch"}) ||
		!slices.Equal(instructions["USER"], []string{"65532:65532"}) {
		t.Errorf("from %v, as %v", instructions["FROM"], instructions["USER"])
	}
	for _, line := range instructions["COPY"] {
		words := strings.Fields(line)
		for _, source := range words[:len(words)-1] {
			if !strings.HasPrefix(source, "--") && !bytes.Contains(script, []byte(source)) {
				t.Errorf("make image does not make %s", source)
			}
		}
	}
}

type service struct {
	Image, Restart  string
	Command         []string
	Entrypoint      []string
	Environment     map[string]string
	Volumes, Ports  []string
	DependsOn       map[string]struct{ Condition string } `yaml:"depends_on"`
	StopGracePeriod string                                `yaml:"stop_grace_period"`
	Healthcheck     healthcheck
	Networks        struct {
		Default struct{ Aliases []string }
	}
}

type healthcheck struct {
	Test              []string
	Interval, Timeout time.Duration
	Retries           int
	StartPeriod       time.Duration `yaml:"start_period"`
	StartInterval     time.Duration `yaml:"start_interval"`
}

func readCompose(t *testing.T, text []byte) map[string]service {
	var file struct {
		Name     string
		Often    any `yaml:"x-often"`
		Nats     any `yaml:"x-nats"`
		Penstock any `yaml:"x-penstock"`
		Services map[string]service
	}
	strict(t, text, &file)
	return file.Services
}

func compose(t *testing.T, text []byte) {
	services := readCompose(t, text)
	for name, s := range services {
		for _, volume := range s.Volumes {
			from, _, _ := strings.Cut(volume, ":")
			if _, err := os.Stat(from); err != nil {
				t.Errorf("%s mounts what is not there: %v", name, err)
			}
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s is open to others at %s", name, port)
			}
		}
		for other, is := range s.DependsOn {
			if services[other].Image == "" || is.Condition != "service_healthy" {
				t.Errorf("%s depends on %s, which there is not, or needs not be healthy", name,
					other)
			}
		}
		if s.Restart != "unless-stopped" || len(s.Healthcheck.Test) < 2 {
			t.Errorf("%s stays away or is taken for healthy: %q, %v", name, s.Restart,
				s.Healthcheck)
		}
		if !strings.Contains(s.Image, ":") {
			t.Errorf("%s has an image without a version: %s", name, s.Image)
		}
		switch {
		case strings.HasPrefix(s.Image, "nats:"):
			if want := "nats:" + serverVersion(t) + "-alpine"; s.Image != want {
				t.Errorf("%s has the image %s, and tests run against %s", name, s.Image, want)
			}
			if !slices.Equal(s.Networks.Default.Aliases, []string{name + ".nats"}) {
				t.Errorf("%s: other servers do not find %v", name, s.Networks.Default.Aliases)
			}
		case strings.Contains(s.Image, "penstock"):
			containerOf(t, name, s)
		}
	}
}

func containerOf(t *testing.T, name string, s service) {
	flags := pflag.NewFlagSet(name, pflag.ContinueOnError)
	if slices.Equal(s.Entrypoint, []string{"/usr/local/bin/drainer"}) {
		config.DrainerFlags(flags)
	} else {
		config.Flags(flags)
	}
	if err := flags.Parse(s.Command); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	health := pflag.NewFlagSet(name, pflag.ContinueOnError)
	config.Flags(health)
	served := flags.Lookup("http-listen").Value.String()
	if err := health.Parse(s.Healthcheck.Test[3:]); err != nil ||
		!slices.Equal(s.Healthcheck.Test[:3],
			[]string{"CMD", "/usr/local/bin/admitter", "healthcheck"}) ||
		strings.Replace(served, "0.0.0.0", "127.0.0.1", 1) !=
			health.Lookup("http-listen").Value.String() {
		t.Errorf("%s serves at %s, and is asked by %s", name, served, s.Healthcheck.Test)
	}
	if err := flags.Set("config", "compose/penstock.yaml"); err != nil {
		t.Fatal(err)
	}
	url := strings.ReplaceAll(s.Environment["PENSTOCK_NATS_URL"], "${NATS_PASSWORD:-penstock}",
		"secret")
	if err := flags.Set("nats-url", url); err != nil {
		t.Fatal(err)
	}
	c, err := config.LoadFile(flags)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if stop, err := time.ParseDuration(s.StopGracePeriod); err != nil ||
		stop < c.Grace+10*time.Second {
		t.Errorf("%s may stop for %q, which leaves little beyond the grace of %v", name,
			s.StopGracePeriod, c.Grace)
	}
	if !strings.Contains(s.Environment["PENSTOCK_NATS_URL"], "@nats-0.nats:4222") {
		t.Errorf("%s knows no server: %v", name, s.Environment)
	}
}

func serverVersion(t *testing.T) string {
	module, err := os.ReadFile("../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`nats-server/v2 v(\S+)`).FindSubmatch(module)
	if found == nil {
		t.Fatal("go.mod has no NATS server")
	}
	return string(found[1])
}

func composed(t *testing.T, text []byte) {
	c := load(t, bytes.Replace(text, []byte("nats: {"), []byte("nats: {url: nats://nats, "), 1))
	if c.NATS.Replicas != 3 || !c.HTTP.Insecure || len(c.Policies) == 0 {
		t.Errorf("got %+v", c)
	}
	file, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range c.HTTP.Hosts {
		if readCompose(t, file)[host].Image == "" {
			t.Errorf("there is no %s", host)
		}
	}
}

func composedPrometheus(t *testing.T, text []byte) {
	var c struct {
		Global struct {
			Interval string `yaml:"scrape_interval"`
		}
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			JobName       string                       `yaml:"job_name"`
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	strict(t, text, &c)
	file, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	scraped := c.ScrapeConfigs[0].StaticConfigs[0].Targets
	for name, s := range readCompose(t, file) {
		if strings.Contains(s.Image, "penstock") && !slices.Contains(scraped, name+":8080") {
			t.Errorf("%s is not scraped: %v", name, scraped)
		}
	}
}

func provisioning(t *testing.T, text []byte) {
	var c struct {
		APIVersion  int `yaml:"apiVersion"`
		Datasources []struct {
			Name, Type, Access, URL string
			IsDefault               bool `yaml:"isDefault"`
		}
		Providers []struct {
			Name, Type string
			Options    struct{ Path string }
		}
	}
	in := yaml.NewDecoder(bytes.NewReader(text))
	in.KnownFields(true)
	if err := in.Decode(&c); err != nil || c.APIVersion != 1 ||
		len(c.Datasources)+len(c.Providers) != 1 {
		t.Errorf("got %+v, %v", c, err)
	}
	file, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Providers {
		if !bytes.Contains(file, []byte(":"+filepath.ToSlash(p.Options.Path)+":ro")) {
			t.Errorf("nothing is mounted at %s", p.Options.Path)
		}
	}
}

func kubernetes(t *testing.T, text []byte) {
	c := load(t, bytes.Replace(text, []byte("nats: {"), []byte("nats: {url: nats://nats, "), 1))
	if c.NATS.Replicas != 3 || c.HTTP.Tokens == "" || c.HTTP.LameDuck == 0 {
		t.Errorf("got %+v", c)
	}
}

// ofKubernetes checks that a file is made of objects, each of a kind. What Kubernetes makes of them
// is tested in internal/deploytest.
func ofKubernetes(t *testing.T, text []byte) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		var object struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
		}
		err := in.Decode(&object)
		if errors.Is(err, io.EOF) && n > 0 {
			return
		}
		if err != nil || object.APIVersion == "" || object.Kind == "" {
			t.Fatalf("object %d: %+v, %v", n+1, object, err)
		}
	}
}
