package deploytest

import (
	"slices"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// build is what kubectl apply --kustomize would send, each object decoded strictly.
func build(t *testing.T) resmap.ResMap {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).
		Run(filesys.MakeFsOnDisk(), "../../deploy/kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// objects decodes those of a kind by name, and lets nothing unknown pass.
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

func TestKubernetesGetsOnlyWhatItKnows(t *testing.T) {
	all := build(t)
	n := len(objects[apps.Deployment](t, all, "Deployment")) +
		len(objects[policy.PodDisruptionBudget](t, all, "PodDisruptionBudget")) +
		len(objects[core.Service](t, all, "Service")) +
		len(objects[core.ConfigMap](t, all, "ConfigMap"))
	if n != all.Size() {
		t.Errorf("%d of %d objects are of kinds that this test knows", n, all.Size())
	}
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
		if pod.Spec.Affinity.PodAntiAffinity == nil || !*pod.Spec.SecurityContext.RunAsNonRoot {
			t.Errorf("%s: its pods share a node, or run as root", name)
		}
		container := pod.Spec.Containers[0]
		for probe, want := range map[*core.Probe]string{container.StartupProbe: "/readyz",
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
