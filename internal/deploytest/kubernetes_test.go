package deploytest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

func build(t *testing.T) resmap.ResMap {
	t.Helper()
	return built(t, "kubernetes")
}

// built returns what kubectl apply --kustomize makes of a folder of deploy/.
func built(t *testing.T, folder string) resmap.ResMap {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), "../../deploy/"+folder)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func objects[T any](t *testing.T, all resmap.ResMap, kind string) map[string]*T {
	t.Helper()
	found := map[string]*T{}
	for _, r := range all.Resources() {
		if r.GetKind() != kind {
			continue
		}
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		var object T
		if err := yaml.UnmarshalStrict(text, &object); err != nil {
			t.Fatalf("%s %s: %v", kind, r.GetName(), err)
		}
		found[r.GetName()] = &object
	}
	return found
}

func TestKubernetesManifestsAreValid(t *testing.T) {
	for _, folder := range []string{"kubernetes", "kubernetes-example"} {
		text, err := built(t, folder).AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		accepted(t, strings.Split(string(text), "\n---\n")...)
	}
	text, err := os.ReadFile("../../deploy/kubernetes/scaledobject.yaml")
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, strings.Split(string(text), "\n---\n")...)
}

func TestPodsKeepServingWhileTheyAreReplaced(t *testing.T) {
	all := build(t)
	var config struct {
		Grace string
		HTTP  struct {
			LameDuck string `json:"lame_duck"`
		}
	}
	for _, c := range objects[core.ConfigMap](t, all, "ConfigMap") {
		if err := yaml.Unmarshal([]byte(c.Data["penstock.yaml"]), &config); err != nil {
			t.Fatal(err)
		}
	}
	grace, err := time.ParseDuration(config.Grace)
	if err != nil {
		t.Fatal(err)
	}
	lame, err := time.ParseDuration(config.HTTP.LameDuck)
	if err != nil {
		t.Fatal(err)
	}
	budgets := objects[policy.PodDisruptionBudget](t, all, "PodDisruptionBudget")
	deployments := objects[apps.Deployment](t, all, "Deployment")
	if len(deployments) != 2 {
		t.Fatalf("%d deployments", len(deployments))
	}
	for name, d := range deployments {
		pod := d.Spec.Template
		patience := time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
		if patience < grace+lame+10*time.Second {
			t.Errorf("%s is killed after %v, with a grace of %v and a lame duck of %v", name,
				patience, grace, lame)
		}
		if *d.Spec.Replicas < 2 || d.Spec.Strategy.RollingUpdate.MaxUnavailable.IntValue() != 0 {
			t.Errorf("%s: nobody is there while one is replaced", name)
		}
		budget := budgets[name]
		if budget == nil || budget.Spec.Selector.MatchLabels["app.kubernetes.io/name"] !=
			pod.Labels["app.kubernetes.io/name"] {
			t.Errorf("%s has no budget for disruptions of its own pods", name)
		}
		var spread []string
		for _, c := range pod.Spec.TopologySpreadConstraints {
			spread = append(spread, c.TopologyKey)
			if !maps.Equal(c.LabelSelector.MatchLabels, d.Spec.Selector.MatchLabels) ||
				c.WhenUnsatisfiable != core.ScheduleAnyway {
				t.Errorf("%s: spreads other pods than its own, or waits for a zone: %+v", name, c)
			}
		}
		if !slices.Equal(spread, []string{core.LabelTopologyZone, core.LabelHostname}) ||
			!*pod.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: its pods are spread over %v, or run as root", name, spread)
		}
		container := pod.Spec.Containers[0]
		for probe, want := range map[*core.Probe]string{container.StartupProbe: "/healthz",
			container.ReadinessProbe: "/readyz", container.LivenessProbe: "/healthz"} {
			if probe == nil || probe.HTTPGet.Path != want ||
				probe.HTTPGet.Port.String() != container.Ports[0].Name {
				t.Errorf("%s: a probe asks %+v, want %s", name, probe, want)
			}
		}
		if limit := container.Resources.Limits.Cpu(); !limit.IsZero() {
			t.Errorf("%s: is held back at %v processors, and starts jobs late", name, limit)
		}
		for _, volume := range pod.Spec.Volumes {
			if !slices.ContainsFunc(container.VolumeMounts, func(m core.VolumeMount) bool {
				return m.Name == volume.Name
			}) {
				t.Errorf("%s: %s is mounted nowhere", name, volume.Name)
			}
		}
	}
}

// Each Deployment has a network policy that admits traffic to its port only, and blocks the clouds'
// metadata services.
func TestPodsAreReachedAtTheirPortAlone(t *testing.T) {
	all := build(t)
	policies := objects[network.NetworkPolicy](t, all, "NetworkPolicy")
	for name, d := range objects[apps.Deployment](t, all, "Deployment") {
		p := policies[name]
		if p == nil || len(p.Spec.PolicyTypes) != 2 || len(p.Spec.Ingress) != 1 ||
			!maps.Equal(p.Spec.PodSelector.MatchLabels, d.Spec.Selector.MatchLabels) {
			t.Errorf("%s has no policy for its network: %+v", name, p)
			continue
		}
		ports := p.Spec.Ingress[0].Ports
		if len(ports) != 1 || ports[0].Port.String() !=
			d.Spec.Template.Spec.Containers[0].Ports[0].Name {
			t.Errorf("%s is reached at %+v", name, ports)
		}
		for _, rule := range p.Spec.Egress {
			if len(rule.Ports) == 0 && len(rule.To) == 0 {
				t.Errorf("%s reaches everything", name)
			}
			for _, to := range rule.To {
				if to.IPBlock != nil && len(to.IPBlock.Except) == 0 {
					t.Errorf("%s reaches all of %s", name, to.IPBlock.CIDR)
				}
			}
		}
	}
}

func TestTheExamplesProxyIsReachedAndReachesItsUpstreams(t *testing.T) {
	all := built(t, "kubernetes-example")
	service := objects[core.Service](t, all, "Service")["penstock"]
	rules := objects[network.NetworkPolicy](t, all, "NetworkPolicy")["penstock-admitter"].Spec
	pod := objects[apps.Deployment](t, all, "Deployment")["penstock-admitter"].Spec.Template.Spec
	var config struct {
		Outbound []struct{ Listen string }
	}
	exampleConfig(t, all, &config)
	_, port, _ := strings.Cut(config.Outbound[0].Listen, ":")
	var name string
	for _, p := range pod.Containers[0].Ports {
		if fmt.Sprint(p.ContainerPort) == port {
			name = p.Name
		}
	}
	served := slices.ContainsFunc(service.Spec.Ports, func(p core.ServicePort) bool {
		return fmt.Sprint(p.Port) == port && p.TargetPort.StrVal == name
	})
	admitted := slices.ContainsFunc(rules.Ingress[0].Ports, func(p network.NetworkPolicyPort) bool {
		return p.Port.StrVal == name
	})
	reaches := slices.ContainsFunc(rules.Egress, func(e network.NetworkPolicyEgressRule) bool {
		return len(e.Ports) == 0 && slices.ContainsFunc(e.To, anywhere)
	})
	if name == "" || !served || !admitted || !reaches {
		t.Errorf("port %s is %q of the pod; served: %v, admitted: %v, upstreams reached: %v",
			port, name, served, admitted, reaches)
	}
}

func anywhere(to network.NetworkPolicyPeer) bool {
	return to.IPBlock != nil && to.IPBlock.CIDR == "0.0.0.0/0" &&
		slices.Contains(to.IPBlock.Except, "169.254.0.0/16")
}

func TestTheExamplesCredentialIsWhereItsTargetLooks(t *testing.T) {
	all := built(t, "kubernetes-example")
	var config struct {
		Policies []struct {
			Target struct {
				HTTP struct {
					Headers map[string]struct{ File string }
				}
			}
		}
	}
	exampleConfig(t, all, &config)
	pod := objects[apps.Deployment](t, all, "Deployment")["penstock-drainer"].Spec.Template.Spec
	n := 0
	for _, policy := range config.Policies {
		for _, header := range policy.Target.HTTP.Headers {
			n++
			mounts := pod.Containers[0].VolumeMounts
			i := slices.IndexFunc(mounts, func(m core.VolumeMount) bool {
				return strings.HasPrefix(header.File, m.MountPath+"/")
			})
			if i < 0 || !slices.ContainsFunc(pod.Volumes, func(v core.Volume) bool {
				return v.Name == mounts[i].Name && v.Secret != nil
			}) {
				t.Errorf("no Secret is mounted for %s", header.File)
			}
		}
	}
	if n == 0 {
		t.Error("no policy has a credential")
	}
}

func exampleConfig(t *testing.T, all resmap.ResMap, into any) {
	t.Helper()
	for _, c := range objects[core.ConfigMap](t, all, "ConfigMap") {
		if err := yaml.Unmarshal([]byte(c.Data["penstock.yaml"]), into); err != nil {
			t.Fatal(err)
		}
	}
}

func TestEveryPodIsScraped(t *testing.T) {
	text, err := os.ReadFile("../../deploy/kubernetes/podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var m monitoring.PodMonitor
	if err := yaml.UnmarshalStrict(text, &m); err != nil {
		t.Fatal(err)
	}
	for name, d := range objects[apps.Deployment](t, build(t), "Deployment") {
		pod, endpoint := d.Spec.Template, m.Spec.PodMetricsEndpoints[0]
		for label, value := range m.Spec.Selector.MatchLabels {
			if pod.Labels[label] != value {
				t.Errorf("%s is not scraped: its labels are %v", name, pod.Labels)
			}
		}
		if *endpoint.Port != pod.Spec.Containers[0].Ports[0].Name || endpoint.Path != "/metrics" {
			t.Errorf("%s is asked for %+v", name, endpoint)
		}
	}
}
