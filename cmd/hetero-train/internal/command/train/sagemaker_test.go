package train

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/config"
)

// SageMaker passes all hyperparameters as texts. Its SDK encodes the values of some estimators as JSON.
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
	// the command line overrides both
	cfg, err := config.Load("", config.Catalog{}, append(o, config.Override{Origin: "--set", Key: "train.steps", Value: "3"})...)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Train.Steps != 3 || cfg.Model.Name != "simple_cnn" || cfg.Optimizer.LR != 0.125 || cfg.Data.Dataset !=
		"synthetic_image" || cfg.Experiment.OutputDir != filepath.Join(base, "checkpoints") ||
		cfg.Train.Resume != "auto" {
		t.Errorf("got %+v", cfg)
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
