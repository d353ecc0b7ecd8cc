package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
)

func TestHostsOfSageMaker(t *testing.T) {
	base := t.TempDir()
	in := "SAGEMAKER_BASE_DIR=" + base
	dir := filepath.Join(base, "input", "config")
	file := filepath.Join(dir, "resourceconfig.json")
	const job, text = "TRAINING_JOB_NAME=job", `{"current_host":"algo-1","hosts":["algo-1"]}`
	check := func(name string, environ []string, want, from string) {
		t.Helper()
		got, fault := sageMakerHosts(session.Environment{Environ: environ})
		if fault != "" || got.Text != want || got.From != from {
			t.Errorf("%s: got %q, %q, want %q, %q", name, got, fault, want, from)
		}
	}
	assign := func(environ ...string) error {
		_, err := findAssignment(parts.Defaults(), cli.LauncherFlags{}, nil, environ)
		return err
	}
	check("the variable of another program", []string{in, job}, "", "")
	if err := assign(in, job); err != nil {
		t.Errorf("the variable of another program: got %v", err)
	}
	const arn = "TRAINING_JOB_ARN=arn:aws:sagemaker:eu-central-1:123456789012:training-job/job"
	if err := assign(in, job, arn); exit.Code(err) != exit.Usage ||
		!strings.Contains(err.Error(), "want the file "+file) {
		t.Errorf("a job without its folder: got %v, want exit code 2 and the file", err)
	}
	if err := os.MkdirAll(filepath.Join(base, "input"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := assign(in, job); exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "want the file "+file) {
		t.Errorf("a job without its file: got %v, want exit code 2 and the file", err)
	}
	if err := assign(in, job, "RANK=0", "WORLD_SIZE=1"); err != nil {
		t.Errorf("a rank of another launcher: got %v", err)
	}
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := assign(in, job); exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "but it is empty") {
		t.Errorf("an empty file: got %v, want exit code 2", err)
	}
	if err := assign(in, job, "RANK=0", "WORLD_SIZE=1"); err != nil {
		t.Errorf("an empty file and another launcher: got %v", err)
	}
	if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := assign(in, job); exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "but it cannot be read") {
		t.Errorf("a folder in the place of the file: got %v, want exit code 2", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	check("a job", []string{in, job}, text, file)
	check("the file without a job", []string{in}, "", "")
	check("an image with the toolkit", []string{in, job, `SM_HOSTS=["a"]`, "SM_CURRENT_HOST=a"}, "", "")
	if err := assign(in, job); err != nil {
		t.Errorf("a job of one host: got %v", err)
	}
}
