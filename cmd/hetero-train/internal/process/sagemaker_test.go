package process

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestHostsOfSageMaker(t *testing.T) {
	base := t.TempDir()
	in := "SAGEMAKER_BASE_DIR=" + base
	const job, text = "TRAINING_JOB_NAME=job", `{"current_host":"algo-1","hosts":["algo-1"]}`
	check := func(name string, environ []string, added bool) {
		t.Helper()
		got, err := withSageMaker(environ)
		want := environ
		if added {
			want = append(slices.Clone(environ), "SM_RESOURCE_CONFIG="+text)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", name, got, err, want)
		}
	}
	check("the variable without the file", []string{in, job}, false)
	dir := filepath.Join(base, "input", "config")
	if err := errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, "resourceconfig.json"), []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
	check("a job", []string{in, job}, true)
	check("the file without a job", []string{in}, false)
	check("an image with the toolkit", []string{in, job, `SM_HOSTS=["a"]`, "SM_CURRENT_HOST=a"}, false)
}
