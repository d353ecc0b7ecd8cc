package train

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/config"
)

// SageMaker passes all hyperparameters as texts. For some estimators, its SDK encodes the values as JSON.
func TestSettingsOfSageMaker(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "input", "config")
	file := filepath.Join(dir, "hyperparameters.json")
	write := func(text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if o, err := sageMakerOverrides(base); err != nil || len(o) != 1 || o[0].Key != "experiment.output_dir" ||
		o[0].Value != `"`+filepath.Join(base, "output", "data")+`"` {
		t.Errorf("no hyperparameters, no checkpoints: got %v, %v", o, err)
	}
	if err := os.Mkdir(filepath.Join(base, "checkpoints"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(`{"train.steps":"30","model.name":"\"simple_cnn\"","data.dataset":"synthetic_image","optimizer.lr":"0.125",
		"sagemaker_job_name":"\"job\"","_tuning_objective_metric":"loss"}`)
	o, err := sageMakerOverrides(base)
	if err != nil {
		t.Fatal(err)
	}
	// The command line overrides SageMaker's settings and the file.
	o = append(o, config.Override{Origin: "--set", Key: "train.steps", Value: "3"})
	cfg, err := config.Load("", config.Catalog{}, o...)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Train.Steps != 3 || cfg.Model.Name != "simple_cnn" || cfg.Optimizer.LR != 0.125 || cfg.Data.Dataset !=
		"synthetic_image" || cfg.Experiment.OutputDir != filepath.Join(base, "checkpoints") ||
		cfg.Train.Resume != "auto" {
		t.Errorf("got %+v", cfg)
	}
	a := &cli.App{Env: session.Environment{Environ: []string{"X=1"}}}
	if err := sageMakerToken(a, base); err != nil || len(a.Env.Environ) != 1 {
		t.Errorf("no channel with a token: got %q, %v", a.Env.Environ, err)
	}
	channel := filepath.Join(base, "input", "data", "token")
	if err := errors.Join(os.MkdirAll(channel, 0o755),
		os.WriteFile(filepath.Join(channel, "token"), []byte("0123456789abcdef\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := sageMakerToken(a, base); err != nil || a.Env.Environ[1] != "HETERO_TOKEN=0123456789abcdef" {
		t.Errorf("a channel with a token: got %q, %v", a.Env.Environ, err)
	}
	if got := a.Hide.Text("at 0123456789abcdef"); strings.Contains(got, "0123456789abcdef") {
		t.Errorf("texts contain the token: got %q", got)
	}
	own := []string{"HETERO_TOKEN=own"}
	a.Env.Environ = own
	if err := sageMakerToken(a, base); err != nil || len(a.Env.Environ) != 1 {
		t.Errorf("a token in the environment: got %q, %v", a.Env.Environ, err)
	}
	a.Env.Environ = nil
	if err := os.WriteFile(filepath.Join(channel, "second"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := sageMakerToken(a, base); err == nil || !strings.Contains(err.Error(), "2 files") {
		t.Errorf("two tokens: got %v", err)
	}
	for text, want := range map[string]string{
		`{"learning-rate":"0.1"}`: `"learning-rate", want the name of a key`,
		`{"train.steps":30}`:      "whose values are texts",
		`[]`:                      "whose values are texts",
		`{`:                       "hyperparameters.json",
	} {
		write(text)
		if _, err := sageMakerOverrides(base); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
}

// Outside a SageMaker job, the command must create no files.
func TestTheFlagOfSageMakerOutsideAJob(t *testing.T) {
	base := filepath.Join(t.TempDir(), "ml")
	a := &cli.App{Env: session.Environment{Environ: []string{"SAGEMAKER_BASE_DIR=" + base}}}
	file := filepath.Join(base, "input", "config", "resourceconfig.json")
	refused := func(name, want string) {
		t.Helper()
		err := startSageMaker(t.Context(), a, new(trainFlags))
		if exit.Code(err) != exit.Usage || !strings.Contains(err.Error(), "--sagemaker: want the file "+file) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want exit code 2 and %q", name, err, want)
		}
	}
	refused("no folder", "no such file")
	if _, err := os.Stat(base); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of SageMaker: got %v, want none", err)
	}
	if err := os.MkdirAll(file, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(base, "output"), 0o755); err != nil {
		t.Fatal(err)
	}
	refused("a folder in place of the file", "it is no file")
	if list, err := os.ReadDir(filepath.Join(base, "output")); err != nil || len(list) != 0 {
		t.Errorf("got %v, %v in the folder for failures, want nothing", list, err)
	}
}
