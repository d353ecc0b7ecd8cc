package checkpoints

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/weights"
)

const inspectLong = `Show the contents of a checkpoint or a .safetensors file.

The output shows which program wrote the file, the progress of the run, the model, the optimizer, and the type, shape and size of
every tensor. For a checkpoint, the command also shows the classes, the preparation of images and the tokenizer, and verifies all
data against the stored hashes.`

const inspectExample = `  hetero-train checkpoint inspect experiments/run
  hetero-train checkpoint inspect experiments/run/checkpoints/best --json
  hetero-train checkpoint inspect resnet50.safetensors`

func newCheckpointInspect(a *cli.App) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "inspect PATH", Short: "Show the contents of a checkpoint or a .safetensors file",
		Long: inspectLong, Example: inspectExample}
	cmd.Flags().BoolVar(&asJSON, "json", false,
		"print one JSON object, which also has the resolved configuration of the run")
	return a.OnePath(cmd, "a checkpoint, a run or a .safetensors file", func(path string) error {
		return inspectPath(a, path, asJSON)
	})
}

// Inspection is the output of command checkpoint inspect.
type Inspection struct {
	Path     string            `json:"path"`
	State    *checkpoint.State `json:"state,omitempty"` // state of the checkpoint; nil for a single file
	Model    *modelSummary     `json:"model,omitempty"`
	Moments  []string          `json:"moments,omitempty"`  // names of the optimizer's moments, sorted
	Averaged bool              `json:"averaged"`           // true if the checkpoint contains averaged weights
	Compared string            `json:"compared,omitempty"` // how the ranks compared this state

	// other checkpoints of the same run that must not be used
	Quarantined []checkpoint.Quarantine `json:"quarantined,omitempty"`

	trained parts.Trained // description of the training data, also in State

	Metadata map[string]string `json:"metadata,omitempty"`
	Files    []fileSummary     `json:"files"`
}

// modelSummary describes the model according to the configuration of the run.
type modelSummary struct {
	Name    string `json:"name"`
	Classes int    `json:"num_classes"`
}

// fileSummary describes one file of tensors.
type fileSummary struct {
	Name     string          `json:"name"`
	Elements int64           `json:"elements"`
	Bytes    int64           `json:"bytes"` // size of the tensors
	Tensors  []tensorSummary `json:"tensors"`
}

type tensorSummary struct {
	Name  string `json:"name"`
	DType string `json:"dtype"` // name of the element type in files, such as F32
	Shape []int  `json:"shape"`
	Bytes int64  `json:"bytes"`
}

func inspectPath(a *cli.App, path string, asJSON bool) error {
	shown, err := inspect(a, path)
	if err != nil {
		return err
	}
	if asJSON {
		return show.JSON(a.Env.Stdout, shown)
	}
	return shown.print(a.Env.Stdout)
}

func inspect(a *cli.App, path string) (*Inspection, error) {
	if parts.IsWeightsFile(path) {
		f, err := checkpoint.OpenFile(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		return &Inspection{Path: path, Metadata: f.Metadata(), Files: []fileSummary{summarize(f)}}, nil
	}
	c, err := parts.OpenCheckpoint(path, a.Warn)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	out := &Inspection{Path: c.Path, State: &c.State, Files: []fileSummary{summarize(c.Model), summarize(c.Optimizer)}}
	if cfg, err := config.Parse(c.Path, []byte(c.State.Config), a.Env.Catalog); err != nil {
		a.Warn(fmt.Errorf("the settings of the checkpoint cannot be read: %w", err))
	} else {
		out.Model = &modelSummary{Name: cfg.Model.Name, Classes: classesOf(c.Model, cfg)}
	}
	if out.trained, _, err = parts.TrainedOn(c.Path, &c.State); err != nil {
		return nil, err
	}
	out.Moments, out.Averaged, out.Compared = moments(c), c.Averaged(), c.State.DescribeCompared()
	out.Quarantined, err = quarantined(filepath.Dir(c.Path))
	return out, err
}

// classesOf returns the number of outputs of the classifier in a file, or 0 if there is no classifier.
func classesOf(f *checkpoint.File, cfg *config.Config) int {
	describe := func() (parts.Network, error) { return parts.DescribeNetwork(&cfg.Model, 1, cfg.Data.ImageSize) }
	if cfg.Model.Samples == config.Tokens {
		describe = func() (parts.Network, error) { return parts.DescribeText(&cfg.Model, 1) }
	}
	n, err := describe() // only the name of the classifier is needed
	if err != nil {
		return 0
	}
	if t, ok := f.Info(n.Head + ".weight"); ok && len(t.Shape) > 0 {
		return t.Shape[0]
	}
	return 0
}

// moments returns the suffixes in the names of the optimizer's tensors. Each name is the name of a parameter and such a
// suffix.
func moments(c *checkpoint.Checkpoint) []string {
	var list []string
	for _, t := range c.Optimizer.Tensors() {
		at := strings.LastIndexByte(t.Name, '.')
		if _, ok := c.Model.Info(t.Name[:max(at, 0)]); ok && !t.IsAverage() && !slices.Contains(list, t.Name[at+1:]) {
			list = append(list, t.Name[at+1:])
		}
	}
	slices.Sort(list)
	return list
}

func summarize(f *checkpoint.File) fileSummary {
	s := fileSummary{Name: filepath.Base(f.Path()), Tensors: []tensorSummary{}}
	for _, t := range f.Tensors() {
		shape := []int{}
		s.Tensors = append(s.Tensors, tensorSummary{Name: t.Name, DType: t.Wire, Shape: append(shape, t.Shape...),
			Bytes: t.Bytes()})
		s.Elements += t.Shape.Elements()
		s.Bytes += t.Bytes()
	}
	slices.SortFunc(s.Tensors, func(a, b tensorSummary) int { return strings.Compare(a.Name, b.Name) })
	return s
}

func (s *Inspection) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(title, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", title, fmt.Sprintf(format, args...))
	}
	if s.State == nil {
		row("file", "%s", show.Foreign(s.Path))
	} else {
		s.printState(row)
	}
	for _, key := range slices.Sorted(maps.Keys(s.Metadata)) {
		row("metadata", "%s = %q", show.Foreign(key), s.Metadata[key])
	}
	for _, f := range s.Files {
		row(show.Foreign(f.Name), "%d tensors, %d elements, %s", len(f.Tensors), f.Elements, show.Bytes(f.Bytes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, f := range s.Files {
		if len(f.Tensors) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", show.Foreign(f.Name))
		for _, t := range f.Tensors {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", show.Foreign(t.Name), show.Foreign(t.DType), shapeText(t.Shape),
				show.Bytes(t.Bytes))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func (s *Inspection) printState(row func(title, format string, args ...any)) {
	state := s.State
	row("checkpoint", "%s", show.Foreign(s.Path))
	row("written by", "%s", show.Foreign(state.Program))
	row("progress", "step %d, epoch %d and %d samples into it, %d samples seen", state.Step, state.Epoch,
		state.EpochSample, state.SamplesSeen)
	if m := s.Model; m != nil {
		row("model", "%s%s", show.Foreign(m.Name), show.Classes(m.Classes))
	}
	if names := s.trained.Classes; len(names) > 0 {
		row("classes", "%s", weights.DescribeClasses(names))
	}
	if s.trained.Known() {
		row("images", "%s", s.trained.Preprocessing)
	}
	if e := s.trained.Encoding(); e.Known() {
		row("text", "%s", show.Foreign(e.String()))
	}
	if b := state.Best; b != nil {
		row("best", "%s %g after step %d", show.Foreign(b.Metric), float64(b.Value), b.Step)
	}
	keeps := "no tensors"
	if len(s.Moments) > 0 {
		keeps = strings.Join(show.Foreigners(s.Moments), ", ")
	}
	row("optimizer", "%s: %s", show.Foreign(state.Optimizer.Name), keeps)
	if s.Averaged {
		row("averages", "of weights and statistics, NAME.ema")
	}
	if s.Compared != "" {
		row("ranks", "%s", show.Foreign(s.Compared))
	}
	for _, q := range s.Quarantined {
		row("quarantined", "%s (%s): %s", show.Foreign(q.Path), strings.Join(show.Foreigners(q.Checkpoints), ", "),
			show.Foreign(q.Reason))
	}
	row("seed", "%d", state.Seed)
	for _, name := range slices.Sorted(maps.Keys(state.Counters)) {
		if n := state.Counters[name]; n != 0 {
			row("counter", "%s = %d", show.Foreign(name), n)
		}
	}
}

func shapeText(shape []int) string {
	text, err := json.Marshal(shape)
	if err != nil {
		panic(err) // unreachable: numbers can always be encoded
	}
	return strings.ReplaceAll(string(text), ",", ", ")
}
