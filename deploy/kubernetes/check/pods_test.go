package check

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// group is some equal pods of an overlay.
type group struct {
	name     string
	pods     int
	template core.PodTemplateSpec
	failures *batch.PodFailurePolicy // of ranks
}

// ranks returns the pods that train.
func ranks(objects []runtime.Object) (groups []group) {
	ofJob := func(name string, times int, job batch.JobSpec) {
		pods := 1
		if job.Parallelism != nil {
			pods = int(*job.Parallelism)
		}
		groups = append(groups, group{name, times * pods, job.Template, job.PodFailurePolicy})
	}
	ofSet := func(set jobset.JobSetSpec) {
		for _, job := range set.ReplicatedJobs {
			ofJob(job.Name, int(job.Replicas), job.Template.Spec)
		}
	}
	for _, object := range objects {
		switch o := object.(type) {
		case *batch.Job:
			ofJob(o.Name, 1, o.Spec)
		case *jobset.JobSet:
			ofSet(o.Spec)
		case *trainer.TrainingRuntime:
			ofSet(o.Spec.Template.Spec)
			groups[len(groups)-1].pods = int(*o.Spec.MLPolicy.NumNodes)
		}
	}
	return groups
}

func dashboards(objects []runtime.Object) (groups []group) {
	for _, object := range objects {
		if o, ok := object.(*apps.Deployment); ok {
			groups = append(groups, group{name: o.Name, pods: int(*o.Spec.Replicas), template: o.Spec.Template})
		}
	}
	return groups
}

func forTrainings(t *testing.T, check func(t *testing.T, objects []runtime.Object)) {
	for overlay := range overlays {
		if strings.HasPrefix(overlay, "overlays/") {
			t.Run(overlay, func(t *testing.T) { check(t, build(t, overlay)) })
			t.Run(overlay+" with components", func(t *testing.T) { check(t, build(t, overlay, "data", "ingress")) })
		}
	}
}

// The level "restricted" of the Pod Security Standards, and what is stricter.
func TestPodsHaveNoPrivileges(t *testing.T) {
	forTrainings(t, func(t *testing.T, objects []runtime.Object) {
		for _, g := range append(ranks(objects), dashboards(objects)...) {
			spec := g.template.Spec
			pod, container := spec.SecurityContext, spec.Containers[0].SecurityContext
			faults := map[string]bool{
				"runAsNonRoot":             pod.RunAsNonRoot == nil || !*pod.RunAsNonRoot,
				"user 65532":               pod.RunAsUser == nil || *pod.RunAsUser != 65532,
				"group 65532":              pod.RunAsGroup == nil || *pod.RunAsGroup != 65532 || *pod.FSGroup != 65532,
				"seccompProfile":           pod.SeccompProfile == nil || pod.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault,
				"allowPrivilegeEscalation": container.AllowPrivilegeEscalation == nil || *container.AllowPrivilegeEscalation,
				"readOnlyRootFilesystem":   container.ReadOnlyRootFilesystem == nil || !*container.ReadOnlyRootFilesystem,
				"capabilities":             container.Capabilities == nil || !slices.Equal(container.Capabilities.Drop, []core.Capability{"ALL"}),
				"automountServiceAccountToken": spec.AutomountServiceAccountToken == nil ||
					*spec.AutomountServiceAccountToken,
				"enableServiceLinks": spec.EnableServiceLinks == nil || *spec.EnableServiceLinks,
				"one container":      len(spec.Containers) != 1 || len(spec.InitContainers) != 0,
				"host namespaces":    spec.HostNetwork || spec.HostPID || spec.HostIPC,
				"the dashboard writes no run": g.failures == nil && slices.ContainsFunc(spec.Containers[0].VolumeMounts,
					func(m core.VolumeMount) bool { return m.MountPath == "/work" && !m.ReadOnly }),
			}
			for what, wrong := range faults {
				if wrong {
					t.Errorf("%s: %s", g.name, what)
				}
			}
		}
	})
}

func TestVolumesBelongTogether(t *testing.T) {
	// storage/data.yaml is not part of storage, unless a user adds it.
	text, err := os.ReadFile("../storage/data.yaml")
	if err != nil {
		t.Fatal(err)
	}
	claim, _, err := strict.Decode(text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	storage := append(build(t, "storage"), claim)
	forTrainings(t, func(t *testing.T, objects []runtime.Object) {
		have := map[string]bool{}
		for _, object := range append(storage, objects...) {
			have[fmt.Sprintf("%T %s", object, object.(v1.Object).GetName())] = true
		}
		for _, g := range append(ranks(objects), dashboards(objects)...) {
			mounts := map[string]string{}
			for _, m := range g.template.Spec.Containers[0].VolumeMounts {
				mounts[m.Name] = m.MountPath
			}
			for _, v := range g.template.Spec.Volumes {
				if mounts[v.Name] == "" {
					t.Errorf("%s: the volume %s is not mounted", g.name, v.Name)
				}
				shm, claim := v.EmptyDir, v.PersistentVolumeClaim
				switch {
				case v.ConfigMap != nil && !have["*v1.ConfigMap "+v.ConfigMap.Name],
					claim != nil && !have["*v1.PersistentVolumeClaim "+claim.ClaimName]:
					t.Errorf("%s: the source of volume %s is not part of the overlay or of storage", g.name, v.Name)
				case v.Secret != nil && *v.Secret.DefaultMode != 0o440:
					t.Errorf("%s: the secret %s has mode %o, want 440", g.name, v.Name, *v.Secret.DefaultMode)
				case v.Name == "shm" && (shm.Medium != core.StorageMediumMemory || shm.SizeLimit.IsZero() ||
					mounts["shm"] != "/dev/shm"):
					t.Errorf("%s: got the shared memory %+v at %s", g.name, shm, mounts["shm"])
				}
				delete(mounts, v.Name)
			}
			isRank := g.failures != nil
			if components := strings.Contains(t.Name(), "components"); slices.ContainsFunc(g.template.Spec.Volumes,
				func(v core.Volume) bool { return v.Name == "data" }) != (components && isRank) {
				t.Errorf("%s: got the volumes %v, want the data set only in ranks, and by its component", g.name,
					g.template.Spec.Volumes)
			}
			if len(mounts) > 0 {
				t.Errorf("%s: there is no volume for the mounts %v", g.name, mounts)
			}
		}
	})
}

func TestSelectorsBudgetsAndPortsFitTheRanks(t *testing.T) {
	port := masterPort(t)
	forTrainings(t, func(t *testing.T, objects []runtime.Object) {
		groups, total := ranks(objects), 0
		var least int
		var selectors []v1.LabelSelector
		for _, object := range objects {
			switch o := object.(type) {
			case *policy.PodDisruptionBudget:
				least = o.Spec.MinAvailable.IntValue()
				selectors = append(selectors, *o.Spec.Selector)
			case *networking.NetworkPolicy:
				if o.Name != "hetero-train-dashboard" {
					selectors = append(selectors, o.Spec.PodSelector, *o.Spec.Ingress[0].From[0].PodSelector)
				}
			}
		}
		if len(selectors) != 3 {
			t.Errorf("got %d selectors, want those of a budget and of a policy", len(selectors))
		}
		for _, g := range groups {
			total += g.pods
			for i := range selectors {
				s, err := v1.LabelSelectorAsSelector(&selectors[i])
				if err != nil || !s.Matches(labels.Set(g.template.Labels)) {
					t.Errorf("%s: the selector %v does not match the labels %v", g.name, s, g.template.Labels)
				}
			}
			ports := map[string]int32{}
			for _, p := range g.template.Spec.Containers[0].Ports {
				ports[p.Name] = p.ContainerPort
			}
			want := map[string]int32{"rendezvous": 29500, "metrics": 9464}
			if g.template.Spec.Containers[0].Name == "node" {
				delete(want, "rendezvous") // Trainer has a port of its own
			}
			if !maps.Equal(ports, want) || port != "29500" {
				t.Errorf("%s: got the ports %v, and %s in config.toml", g.name, ports, port)
			}
		}
		if least != total-1 {
			t.Errorf("got minAvailable %d with %d ranks, want one less", least, total)
		}
	})
}

func TestExitCodesDecideAboutRestarts(t *testing.T) {
	forTrainings(t, func(t *testing.T, objects []runtime.Object) {
		for _, g := range ranks(objects) {
			actions := map[int32]batch.PodFailurePolicyAction{}
			disruption := false
			for _, rule := range g.failures.Rules {
				disruption = disruption || len(rule.OnPodConditions) == 1 &&
					rule.Action == batch.PodFailurePolicyActionIgnore
				if rule.OnExitCodes == nil {
					continue
				}
				if *rule.OnExitCodes.ContainerName != g.template.Spec.Containers[0].Name {
					t.Errorf("%s: a rule is about the container %s", g.name, *rule.OnExitCodes.ContainerName)
				}
				for _, code := range rule.OnExitCodes.Values {
					actions[code] = rule.Action
				}
			}
			fail, ignore := batch.PodFailurePolicyActionFailJob, batch.PodFailurePolicyActionIgnore
			want := map[int32]batch.PodFailurePolicyAction{2: fail, 4: fail, 75: ignore, 143: ignore}
			if !disruption || !maps.Equal(actions, want) {
				t.Errorf("%s: got %v, and a rule for disruptions: %v", g.name, actions, disruption)
			}
			if s := g.template.Spec.TerminationGracePeriodSeconds; s == nil || *s < 60 {
				t.Errorf("%s: got the grace period %v, want time for a save", g.name, s)
			}
		}
	})
}

func masterPort(t *testing.T) string {
	config, err := os.ReadFile("../base/config.toml")
	if err != nil {
		t.Fatal(err)
	}
	return string(regexp.MustCompile(`master_port = (\d+)`).FindSubmatch(config)[1])
}

// named reports whether JobSet gives pods names before they are ready.
func named(n *jobset.Network) bool {
	return n != nil && n.EnableDNSHostnames != nil && *n.EnableDNSHostnames && n.PublishNotReadyAddresses != nil &&
		*n.PublishNotReadyAddresses
}

// kustomize replaces the image also where it does not know the type of the object, and each rank has a device: never
// silently the CPUs of a node with a GPU.
func TestImagesAndDevices(t *testing.T) {
	forTrainings(t, func(t *testing.T, objects []runtime.Object) {
		for _, g := range append(ranks(objects), dashboards(objects)...) {
			c := g.template.Spec.Containers[0]
			if c.Image != "registry.example.org/hetero-train:VERSION-cuda" {
				t.Errorf("%s: got the image %s, want that of the kustomization", g.name, c.Image)
			}
			_, gpu := c.Resources.Limits["nvidia.com/gpu"]
			want := map[bool]string{true: "--set=device.kind=cuda", false: "--set=device.kind=cpu"}[gpu]
			if g.failures != nil && !slices.Contains(c.Args, want) {
				t.Errorf("%s: got the arguments %q, want %s", g.name, c.Args, want)
			}
		}
	})
}

// The dashboard answers to the names of its Service, and below the path of the ingress.
func TestTheDashboardKnowsItsNames(t *testing.T) {
	forTrainings(t, func(t *testing.T, objects []runtime.Object) {
		var service string
		var ingress *networking.Ingress
		for _, object := range objects {
			switch o := object.(type) {
			case *core.Service:
				if o.Spec.Selector["app.kubernetes.io/component"] == "dashboard" {
					service = o.Name
				}
			case *networking.Ingress:
				ingress = o
			}
		}
		c := dashboards(objects)[0].template.Spec.Containers[0]
		var lists []string
		for _, arg := range c.Args {
			if list, ok := strings.CutPrefix(arg, "--set=dashboard.hosts="); ok {
				lists = append(lists, list)
			}
		}
		want := []string{service, service + ".$(NAMESPACE)", service + ".$(NAMESPACE).svc"}
		if (ingress != nil) != strings.Contains(t.Name(), "components") {
			t.Fatalf("got the ingress %v", ingress)
		}
		if ingress != nil {
			rule := ingress.Spec.Rules[0]
			path := rule.HTTP.Paths[0]
			want = append([]string{rule.Host}, want...)
			if *path.PathType != networking.PathTypePrefix || !slices.Contains(c.Args, "--base-path="+path.Path) ||
				path.Backend.Service.Name != service || path.Backend.Service.Port.Name != c.Ports[0].Name ||
				len(ingress.Annotations) > 0 {
				t.Errorf("got the path %+v and the arguments %q", path, c.Args)
			}
		}
		if got := `["` + strings.Join(want, `","`) + `"]`; service == "" || len(lists) != 1 || lists[0] != got {
			t.Errorf("got the names %q, want %s", lists, got)
		}
		if c.Env[0].Name != "NAMESPACE" || c.Env[0].ValueFrom.FieldRef.FieldPath != "metadata.namespace" {
			t.Errorf("got the variable %+v, want NAMESPACE from the field", c.Env[0])
		}
		for _, probe := range []*core.Probe{c.ReadinessProbe, c.LivenessProbe} {
			if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != "/healthz" {
				t.Errorf("got the probe %+v, want GET /healthz", probe)
			}
		}
	})
}

// Rank 0 has a name, and all pods know it and their number.
func TestRanksFindEachOther(t *testing.T) {
	for _, object := range build(t, "overlays/indexed-job") {
		job, ok := object.(*batch.Job)
		if !ok {
			continue
		}
		env, named := map[string]string{}, false
		for _, e := range job.Spec.Template.Spec.Containers[0].Env {
			env[e.Name] = e.Value
		}
		subdomain := job.Spec.Template.Spec.Subdomain
		if env["WORLD_SIZE"] != fmt.Sprint(*job.Spec.Completions) || *job.Spec.Completions != *job.Spec.Parallelism ||
			env["MASTER_ADDR"] != job.Name+"-0."+subdomain || *job.Spec.CompletionMode != batch.IndexedCompletion {
			t.Errorf("got %v with %d completions", env, *job.Spec.Completions)
		}
		for _, object := range build(t, "overlays/indexed-job") {
			s, ok := object.(*core.Service)
			if ok && s.Name == subdomain && s.Spec.ClusterIP == "None" && s.Spec.PublishNotReadyAddresses &&
				s.Spec.Selector["batch.kubernetes.io/job-name"] == job.Name {
				named = true
			}
		}
		if !named {
			t.Errorf("no headless Service %s selects the pods of the Job", subdomain)
		}
	}
	config := masterPort(t)
	for _, object := range build(t, "overlays/trainer") {
		if r, ok := object.(*trainer.TrainingRuntime); ok && !named(r.Spec.Template.Spec.Network) {
			t.Errorf("trainer: got the network %+v, want names of pods that are not ready",
				r.Spec.Template.Spec.Network)
		}
	}
	for _, object := range build(t, "overlays/jobset") {
		set, ok := object.(*jobset.JobSet)
		if !ok {
			continue
		}
		first := set.Spec.ReplicatedJobs[0]
		if set.Spec.Coordinator.ReplicatedJob != first.Name { // the only Job whose global index is 0
			t.Errorf("rank 0 is in %s, and the coordinator in %s", first.Name, set.Spec.Coordinator.ReplicatedJob)
		}
		if !named(set.Spec.Network) {
			t.Errorf("jobset: got the network %+v, want names of pods that are not ready", set.Spec.Network)
		}
		for _, job := range set.Spec.ReplicatedJobs {
			for _, e := range job.Template.Spec.Template.Spec.Containers[0].Env {
				if e.Name == "PET_MASTER_PORT" && e.Value != config {
					t.Errorf("%s: got the port %s of rank 0, and %s in config.toml", job.Name, e.Value, config)
				}
			}
			if *job.Template.Spec.Completions != 1 || *job.Template.Spec.Parallelism != 1 {
				t.Errorf("%s: more than one pod would have the number of one Job", job.Name)
			}
		}
	}
}
