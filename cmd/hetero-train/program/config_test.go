package program

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/golden"
)

const configsFolder = "../../../configs"

func configFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(configsFolder, "*.toml"))
	if err != nil || len(files) < 2 {
		t.Fatalf("got %d files in configs, %v", len(files), err)
	}
	return files
}

func TestConfigsREADMEIsCurrent(t *testing.T) {
	o := execute([]string{"config", "docs"})
	if o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	golden.Check(t, filepath.Join(configsFolder, "README.md"), o.stdout)
}

func TestCommittedConfigsLoadAndShowWhatLoadsBackTheSame(t *testing.T) {
	for _, file := range append(configFiles(t), "../../../deploy/kubernetes/base/config.toml") {
		o := execute([]string{"config", "show", "-c", file})
		if o.code != exit.Done {
			t.Errorf("%s: %s", file, o.stderr)
			continue
		}
		again := execute([]string{"config", "show", "-c", clitest.WriteConfig(t, o.stdout)})
		if again.code != exit.Done || again.stdout != o.stdout {
			t.Errorf("%s: the resolved configuration resolves to\n%s%s", file, again.stdout, again.stderr)
		}
	}
}

// Each key must have an explanation: a comment at the end of its line or on the line above.
func TestCommittedConfigsExplainEveryKey(t *testing.T) {
	key := regexp.MustCompile(`^[a-z_0-9]+ *=`)
	for _, file := range configFiles(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		above := ""
		for line := range strings.Lines(string(text)) {
			if key.MatchString(line) && !strings.Contains(line, " # ") && !strings.HasPrefix(above, "# ") {
				t.Errorf("%s: no explanation of: %s", file, line)
			}
			above = line
		}
	}
}

func TestHeadlineConfigIsResNet50OnCIFAR10(t *testing.T) {
	o := execute([]string{"-c", filepath.Join(configsFolder, "resnet50.toml")})
	if o.code != exit.Done {
		t.Fatal(o.stderr)
	}
	for key, want := range map[string]string{
		"model.name": `"resnet50"`, "model.stem": `"imagenet"`, "data.dataset": `"cifar10"`,
		"data.fallback":   `"synthetic_image"`,
		"data.image_size": "32", "data.batch_size": "128", "optimizer.name": `"sgd"`, "optimizer.nesterov": "true",
		"schedule.name": `"cosine"`, "train.precision": `"auto"`, "train.resume": `"auto"`,
	} {
		if got := value(t, o.cfg, key); got != want {
			t.Errorf("%s: got %s, want %s", key, got, want)
		}
	}
}

func TestConfigSchemaIsJSONWithTheModelsOfTheProgram(t *testing.T) {
	o := execute([]string{"config", "schema"})
	var schema struct {
		Properties struct {
			Model struct {
				Properties struct {
					Name struct{ Enum []string }
					Stem struct{ Enum []string }
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(o.stdout), &schema); err != nil || o.code != exit.Done {
		t.Fatalf("got exit code %d, %v", o.code, err)
	}
	if got := len(schema.Properties.Model.Properties.Name.Enum); got != len(parts.BuiltinCatalog.Models) {
		t.Errorf("got %d models, want %d", got, len(parts.BuiltinCatalog.Models))
	}
	if got := schema.Properties.Model.Properties.Stem.Enum; len(got) != 2 {
		t.Errorf("stem: got %v, want two values", got)
	}
}

// TestCommittedConfigsNameTheCommandThatMakesTheirData opens the data of each file in an empty folder. The error must
// name the command.
func TestCommittedConfigsNameTheCommandThatMakesTheirData(t *testing.T) {
	var files []string
	for _, file := range configFiles(t) {
		absolute, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, absolute)
	}
	t.Chdir(t.TempDir())
	for _, file := range files {
		cfg, err := config.Load(file, parts.BuiltinCatalog)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Data.Dataset == "cifar10" { // the program downloads this data set
			continue
		}
		opened, err := parts.OpenData(t.Context(), cfg, 0, slog.New(slog.DiscardHandler))
		switch {
		case err == nil:
			if err := opened.Close(); err != nil || cfg.Data.Path != "" {
				t.Errorf("%s: got data from an empty folder, %v", filepath.Base(file), err)
			}
		case !strings.Contains(err.Error(), "hetero-train data tokenize TEXT") &&
			!strings.Contains(err.Error(), "hf download"):
			t.Errorf("%s: the error names no command: %v", filepath.Base(file), err)
		}
	}
}
