package inference

import (
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/clitest"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokenizer"
)

// Imported weights may lack the names of classes.
func TestAModelIsRebuiltFromWhatThereIs(t *testing.T) {
	m := savedModel{run: assembly.New(parts.Defaults(), session.Options{})}
	if got := m.class(3); got != "class 3" {
		t.Errorf("got %q, want the number of a class without a name", got)
	}
	m.trained.Classes = []string{"cat", "dog"}
	if n, err := m.countClasses(); n != 2 || err != nil {
		t.Errorf("got %d, %v; want as many classes as there are names", n, err)
	}
	m.run.Process.Cfg.Model.NumClasses = 1000
	if n, err := m.countClasses(); n != 1000 || err != nil {
		t.Errorf("got %d, %v; want what the settings say", n, err)
	}
}

func TestSettingsComeFromWhereTheyCanBeRead(t *testing.T) {
	const small, unknown = "[model]\nname = \"simple_cnn\"\n", "[model]\nname = \"simple_cnn\"\nunknown = true\n"
	for _, c := range []struct {
		name, inCheckpoint, file string
		want                     string // name of the model, or part of the expected error
	}{
		{"in the checkpoint", small, "", "simple_cnn"},
		{"nowhere", "", "", "has no settings"},
		{"unreadable", unknown, "", "give the settings with -c FILE"},
		{"unreadable, but a file is given", unknown, "[model]\nname = \"resnet18\"\n", "resnet18"},
	} {
		dir := t.TempDir()
		a := &cli.App{}
		if c.file != "" {
			a.File = clitest.WriteConfig(t, c.file)
		}
		saved := &checkpoint.Checkpoint{Path: filepath.Join(dir, "checkpoints", "step-00000001"),
			State: checkpoint.State{Config: c.inCheckpoint}}
		cfg, err := savedSettings(a, saved)
		switch {
		case err != nil && (!strings.Contains(err.Error(), c.want) || exit.Code(err) != exit.Usage):
			t.Errorf("%s: got %v, want %q and exit code 2", c.name, err, c.want)
		case err == nil && cfg.Model.Name != c.want:
			t.Errorf("%s: got the model %s, want %s", c.name, cfg.Model.Name, c.want)
		}
	}
}

// exhaustedSet is a data set whose reader cannot be opened, because the process has no free file descriptors.
type exhaustedSet struct{ data.Dataset }

func (exhaustedSet) NewReader() (data.Reader, error) { return exhaustedReader{}, nil }

type exhaustedReader struct{ data.Reader }

func (exhaustedReader) Read(i int, _ data.Sizer, _ *data.Image) error {
	return &data.Fault{Op: "read image", Index: i, Err: syscall.EMFILE}
}

func TestPredictDoesNotBlameImagesForWantOfFileHandles(t *testing.T) {
	set := &lenient{Dataset: exhaustedSet{}, failed: map[int]error{}}
	r, err := set.NewReader()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Read(0, nil, new(data.Image)); !errors.Is(err, syscall.EMFILE) || len(set.failed) != 0 {
		t.Errorf("got %v and %d images told as damaged, want the error", err, len(set.failed))
	}
}

// If all class names of both sides are integers, they are still names: folder 1 is class "1", and not the first class.
func TestClassesThatAreNumbersAreNames(t *testing.T) {
	digits := []string{"0", "1", "2", "3"}
	for _, c := range []struct {
		model, data []string
		want        []int
		refused     bool
	}{
		{digits, digits, nil, false},
		{digits, []string{"2", "3"}, []int{2, 3}, false},
		{digits, []string{"1", "2", "3", "4"}, nil, true},
		{[]string{"1", "2", "3", "4"}, digits, nil, true},
		{[]string{"LABEL_0", "LABEL_1"}, []string{"cat", "dog"}, nil, false},
	} {
		m := savedModel{run: assembly.New(parts.Defaults(), session.Options{}), checkpoint: &checkpoint.Checkpoint{},
			classes: len(c.model)}
		m.run.Process.Opts.Log = slog.New(slog.DiscardHandler)
		m.trained.Classes = c.model
		got, err := m.classNumbers(c.data)
		if (err != nil) != c.refused || !slices.Equal(got, c.want) {
			t.Errorf("model %q, data %q: got %v, %v", c.model, c.data, got, err)
		}
	}
}

// A line may have a label in its third column. The classifier of text pairs must not read this label as a part of the
// second text.
func TestALineHasTheTextsOfTheClassifier(t *testing.T) {
	for _, pairs := range []bool{false, true} {
		r := reader{words: &tokenizer.WordPiece{}, classes: true, pairs: pairs}
		line := "a\tb\tc"
		if !pairs {
			line = "a\tb"
		}
		if err := r.encode(&typed{}, []byte(line)); err == nil || !strings.Contains(err.Error(), " tabs, want ") {
			t.Errorf("pairs %t: got %v", pairs, err)
		}
	}
}
