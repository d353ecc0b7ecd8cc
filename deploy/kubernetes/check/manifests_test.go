// Package check decodes the manifests of deploy/kubernetes by the Go types that Kubernetes, JobSet and Kubeflow Trainer
// publish, and checks that values that occur in several manifests are equal. It is a separate module, because no
// program needs these types.
package check

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	jobset "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

var strict = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, batch.AddToScheme, apps.AddToScheme,
		policy.AddToScheme, networking.AddToScheme, rbac.AddToScheme, jobset.AddToScheme, trainer.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// overlays are the folders that users apply, and the least number of their objects.
var overlays = map[string]int{"overlays/indexed-job": 8, "overlays/jobset": 7, "overlays/trainer": 8, "advise": 5,
	"storage": 1}

// build returns the objects of an overlay, with components, as kubectl would apply them.
func build(t *testing.T, overlay string, components ...string) []runtime.Object {
	t.Helper()
	folder := filepath.Join("..", overlay)
	if len(components) > 0 {
		folder = t.TempDir()
		text := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [" +
			relative(t, folder, overlay) + "]\ncomponents:\n"
		for _, name := range components {
			text += "  - " + relative(t, folder, "components/"+name) + "\n"
		}
		if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsRootOnly
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	var objects []runtime.Object
	for _, resource := range resources.Resources() {
		text, err := resource.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := strict.Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("%s: %s: %v", overlay, resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	return objects
}

// relative returns the path from a folder to one of deploy/kubernetes: kustomize refuses absolute paths.
func relative(t *testing.T, from, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(filepath.Join("..", path))
	if err != nil {
		t.Fatal(err)
	}
	result, err := filepath.Rel(from, absolute)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestOverlaysDecodeStrictly(t *testing.T) {
	for overlay, least := range overlays {
		if objects := build(t, overlay); len(objects) < least {
			t.Errorf("%s: got %d objects, want at least %d", overlay, len(objects), least)
		}
	}
}

// The files as they are: kustomize drops duplicate keys.
func TestFilesDecodeStrictly(t *testing.T) {
	files := 0
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" || entry.Name() == "kustomization.yaml" {
			return err
		}
		files++
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i, document := range bytes.Split(text, []byte("\n---\n")) {
			if _, _, err := strict.Decode(document, nil, nil); err != nil {
				t.Errorf("%s: document %d: %v", path, i+1, err)
			}
		}
		return nil
	})
	if err != nil || files < 9 {
		t.Errorf("got %d files (error %v), want at least 9", files, err)
	}
}

func TestWrongFieldsAreFound(t *testing.T) {
	for _, c := range []struct{ file, old, changed, says string }{
		{"overlays/indexed-job/job.yaml", "completionMode:", "completionMod:", `unknown field "spec.completionMod"`},
		{"overlays/indexed-job/job.yaml", "readOnlyRootFilesystem:", "readOnlyRoot:", "readOnlyRoot"},
		{"overlays/jobset/jobset.yaml", "maxRestarts:", "restarts:", `unknown field "spec.failurePolicy.restarts"`},
		{"overlays/trainer/trainer.yaml", "torch:", "pytorch:", `unknown field "spec.mlPolicy.pytorch"`},
		{"base/disruption-budget.yaml", "minAvailable: 2", "minAvailable: 2\n  minAvailable: 2", "already set"},
	} {
		text, err := os.ReadFile(filepath.Join("..", c.file))
		if err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, document := range strings.Split(strings.Replace(string(text), c.old, c.changed, 1), "\n---\n") {
			if _, _, err := strict.Decode([]byte(document), nil, nil); err != nil {
				said = append(said, err.Error())
			}
		}
		if len(said) != 1 || !strings.Contains(said[0], c.says) {
			t.Errorf("%s with %q: got %q, want one error with %q", c.file, c.changed, said, c.says)
		}
	}
}
