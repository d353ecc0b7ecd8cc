package assembly

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// learntKey is the key of the derived values in a checkpoint.
const learntKey = "learnt"

// Derive computes the derived values of this run. Only the values of rank 0 are used.
func (r *Run) Derive(ctx context.Context) (derived, error) {
	classes, err := r.classes()
	if err != nil {
		return nil, err
	}
	if r.print, err = r.Data.Print(ctx); err != nil {
		return nil, err
	}
	d := derived{
		"data.dataset":      strconv.Quote(r.Data.Name),
		dataPathKey:         r.print.Digest,
		precisionKey:        strconv.Quote(r.Rank.Precision.String()),
		"model.num_classes": strconv.Itoa(classes),
	}
	if r.Process.Cfg.Model.BatchNorm == "local" { // local statistics depend on the number of samples per rank
		d["parallel.ranks"] = strconv.Itoa(max(r.Process.Opts.Assignment.WorldSize, 1))
	}
	if r.Falls() {
		d[totalKey] = strconv.FormatInt(r.Steps, 10)
	}
	if content, ok := r.initContent(); ok {
		d[initKey] = content
	}
	return d, nil
}

// Settings that are paths. The comparison of two runs uses the contents of the files instead of the paths.
const (
	dataPathKey = "data.path"
	valPathKey  = "data.val_path"
	initKey     = "model.init_from"
)

// printKey is the key under which a checkpoint stores the fingerprint of the data.
const printKey = "data_print"

// For this setting, the comparison of two runs uses the element type that "auto" selected.
const (
	precisionKey = "train.precision"
)

// IdentityOf returns the digest of the data on which a checkpoint was trained, or "" if the checkpoint contains no
// digest.
func IdentityOf(state *checkpoint.State) string {
	var before derived
	if json.Unmarshal(state.Extra[learntKey], &before) != nil {
		return ""
	}
	return before[dataPathKey]
}

// PrintOf returns the fingerprint of the data on which a checkpoint was trained. It is empty if the checkpoint contains
// no fingerprint, for example for imported weights.
func PrintOf(state *checkpoint.State) parts.Fingerprint { return printIn(state.Extra) }

func printIn(extra map[string]json.RawMessage) (f parts.Fingerprint) {
	if json.Unmarshal(extra[printKey], &f) != nil {
		return parts.Fingerprint{}
	}
	return f
}

// totalKey is the key of a derived value: the number of steps of the whole run. This is the key even if another setting
// limits the run. Derive sets the value only if the learning rate depends on it.
const totalKey = "train.steps"

// Falls reports whether the learning rate depends on the length of the run.
func (r *Run) Falls() bool {
	return r.Process.Cfg.Schedule.Name == "cosine" || r.Process.Cfg.Schedule.Name == "linear"
}

// lengthKey returns the key of the setting that limits the run.
func lengthKey(c *config.Config) string {
	switch {
	case c.Train.Steps > 0:
		return "train.steps"
	case c.Train.Epochs > 0:
		return "train.epochs"
	}
	return "train.max_seconds"
}

// Length formats the setting that limits the run, with its value.
func (r *Run) Length() string {
	t := r.Process.Cfg.Train
	switch key := lengthKey(r.Process.Cfg); key {
	case "train.steps":
		return fmt.Sprintf("%s = %d", key, t.Steps)
	case "train.epochs":
		if r.Epochs < t.Epochs {
			key, t.Epochs = "data.fallback_epochs", r.Epochs
		}
		return fmt.Sprintf("%s = %d (%d steps)", key, t.Epochs, r.Steps)
	default:
		return fmt.Sprintf("%s = %v", key, t.MaxSeconds)
	}
}

// initContent returns a digest of the initial weights. The digest is "" if model.init_from is not set. The result known
// is false if the file cannot be read. This is not an error, because a resumed run does not need the file. A new run
// reports the error when it loads the weights.
func (r *Run) initContent() (content string, known bool) {
	path := r.Process.Cfg.Model.InitFrom
	if path == "" {
		return "", true
	}
	f, err := parts.OpenWeights(path, func(error) {}) // InitFrom reports skipped checkpoints
	if err != nil {
		return "", false
	}
	defer f.Close()
	content, err = parts.ContentOf(f.File)
	return content, err == nil
}

// compare lists the changed settings that affect training results. It implements experiment.Options.Compare.
func (r *Run) compare(e experiment.Earlier) ([]experiment.Change, error) {
	old, err := config.Parse(e.From, []byte(e.Config), r.Process.Opts.Env.Catalog)
	if err != nil {
		if !r.Process.Named() && r.Process.Cfg.Train.Resume == experiment.ResumeAuto {
			return []experiment.Change{{Key: "configuration", Old: "unreadable", New: "another"}}, nil
		}
		r.Process.Opts.Log.Warn(
			"the settings of the earlier run cannot be read, so they are not compared with the new settings", "error",
			err)
		return nil, nil
	}
	before := derived{}
	if raw, ok := e.Extra[learntKey]; ok {
		if err := json.Unmarshal(raw, &before); err != nil {
			return nil, exit.With(exit.Data, fmt.Errorf("%s: derived settings: %w", e.From, err))
		}
	} else if r := e.Result; r != nil {
		// the precision of ranks with different types is a list such as "bf16 (ranks 0, 1), f32 (rank 2)"
		rank0, _, _ := strings.Cut(r.Precision, " ")
		before["data.dataset"], before[precisionKey] = strconv.Quote(r.Dataset), strconv.Quote(rank0)
	}
	return r.changes(old, before, printIn(e.Extra)), nil
}

// changes compares the settings and the derived values of this run with those of an earlier run, key by key. The
// parameters old, before and data are the settings, the derived values and the data fingerprint of the earlier run.
func (r *Run) changes(old *config.Config, before derived, data parts.Fingerprint) []experiment.Change {
	texts := map[string]config.Difference{}
	for _, d := range config.Diff(old, r.Process.Cfg) {
		texts[d.Key] = d
	}
	// With "auto", a run keeps the type of the checkpoint if the device supports it. Another type then means another
	// device, which is not a changed setting.
	adapts := r.Process.Cfg.Train.Precision == "auto"
	var all []experiment.Change
	add := func(key, was, now, detail string) {
		if key == "data.batch_size" && slices.ContainsFunc(r.Process.Opts.Args, func(arg string) bool {
			return strings.HasPrefix(arg, "--batch-size")
		}) {
			now += fmt.Sprintf(" (--batch-size counts the samples of each of the %d ranks; --set data.batch_size=%s keeps the global batch size)",
				max(r.Process.Opts.Assignment.WorldSize, 1), was)
		}
		if !slices.Contains(r.Process.Opts.Allow, key) {
			shapes := texts[key].Shapes || key == "model.num_classes" // num_classes: the derived number of outputs
			all = append(all, experiment.Change{Key: key, Old: was, New: now, Detail: detail, Shapes: shapes})
		}
	}
	for _, d := range texts {
		if d.Key == precisionKey && adapts {
			continue
		}
		_, known := before[d.Key]
		_, knownNow := r.Learnt[d.Key]
		if (d.Learnt || d.Key == dataPathKey || d.Key == initKey) && (!known || !knownNow) {
			add(d.Key, orNone(d.Old), orNone(d.New), "")
		}
	}
	for key, now := range r.Learnt {
		was, known := before[key]
		if !known || was == now || key == precisionKey && adapts || key == totalKey && r.Process.Named() {
			// totalKey: a run with its own name may become longer, and then follows the schedule of the new length
			continue
		}
		detail := ""
		if key == dataPathKey {
			if text, only := r.Data.Repaired(data, r.print); only {
				r.sayRepaired(text)
				continue
			}
			var ofPath, ofVal string
			if ofPath, ofVal = r.dataDetails(old, data); ofVal != "" {
				add(valPathKey, data.Eval.String(), r.print.Eval.String(), ofVal)
			}
			if ofPath == "" && ofVal != "" {
				continue
			}
			detail = ofPath
		}
		if d, differs := texts[key]; differs && key != totalKey && d.Old != was {
			was, now = d.Old+" ("+was+")", d.New+" ("+now+")"
		}
		if key == totalKey {
			key, was, now = lengthKey(r.Process.Cfg), was+" steps (schedule.name = "+
				strconv.Quote(r.Process.Cfg.Schedule.Name)+")", now+" steps"
		}
		add(key, orNone(was), orNone(now), detail)
	}
	order := settingsOrder(r.Process.Cfg)
	slices.SortFunc(all, func(a, b experiment.Change) int {
		if d := order[a.Key] - order[b.Key]; d != 0 {
			return d
		}
		return strings.Compare(a.Key, b.Key)
	})
	return all
}

// sayRepaired logs text, once: the data differ from those of the earlier run only in repaired samples.
func (r *Run) sayRepaired(text string) {
	if !r.saidRepaired {
		r.saidRepaired = true
		r.Process.Opts.LogOf(logs.ComponentCheckpoint).Info(text +
			"; the run continues, because the order of the samples is the same")
	}
}

// dataDetails describes how the data differ from the data with the fingerprint previous. The result ofPath describes
// the data from data.path, and ofVal the data from data.val_path. A text is "" if no difference is known.
func (r *Run) dataDetails(old *config.Config, previous parts.Fingerprint) (ofPath, ofVal string) {
	train, eval := r.Data.Differences(previous, r.print)
	if old.Data.ValPath != "" || r.Process.Cfg.Data.ValPath != "" {
		return train, eval
	}
	if train != "" && eval != "" {
		train += "; "
	}
	return train + eval, ""
}

func orNone(text string) string {
	if text == "" {
		return "none"
	}
	return text
}

func settingsOrder(c *config.Config) map[string]int {
	order := map[string]int{}
	for i, s := range c.Settings() {
		order[s.Key] = i
	}
	return order
}

// Allowable returns an error if a key of --allow does not exist or does not affect training results.
func Allowable(c *config.Config, keys []string) error {
	if len(keys) > 0 && c.Train.Resume == experiment.ResumeNone {
		return exit.Usagef("--allow: has no effect with --resume none, which starts a new run")
	}
	byContent := []string{dataPathKey, valPathKey, initKey, "parallel.ranks", totalKey, "train.epochs"}
	order := settingsOrder(c)
	for _, key := range keys {
		affects, known := c.Learnt(key)
		switch {
		case !known:
			near := config.Nearest(key, slices.Sorted(maps.Keys(order)), 1)
			return exit.Usagef("--allow: unknown key (got %q, want table.key, nearest: %s)", key,
				strings.Join(near, ", "))
		case !affects && !slices.Contains(byContent, key):
			return exit.Usagef("--allow: %s does not need --allow, because it does not affect training results", key)
		}
	}
	return nil
}

// Extra returns the values that this program adds to a checkpoint of package train.
func (r *Run) Extra() map[string]json.RawMessage {
	all := r.trainedOn()
	text, err := json.Marshal(r.Learnt)
	if err != nil {
		panic(err) // unreachable: strings can always be encoded
	}
	all[learntKey] = text
	if text, err = json.Marshal(r.print); err != nil {
		panic(err) // unreachable: strings and bytes can always be encoded
	}
	all[printKey] = text
	return all
}

func (r *Run) trainedOn() map[string]json.RawMessage {
	samples, _ := r.Data.Counts()
	about := parts.Trained{Name: r.Data.Name, Note: r.Data.Note, Samples: samples, Classes: r.Data.Classes(),
		MultiLabel: r.Data.Sets != nil}
	if t := r.Data.Tokens; t != nil {
		about.Tokenizer, about.Words, about.Vocabulary, about.Length = t.Tokenizer, t.Words, t.Vocabulary, t.Length
	} else {
		about.Preprocessing = parts.PreprocessingOf(r.Process.Cfg.Data, r.Data.Normalization)
	}
	text, err := json.Marshal(about)
	if err != nil {
		panic(err) // unreachable: strings and finite numbers can always be encoded
	}
	types, err := json.Marshal(r.Rank.Types)
	if err != nil {
		panic(err) // unreachable: strings can always be encoded
	}
	all := map[string]json.RawMessage{parts.DataKey: text, compute.TypesKey: types}
	if r.Process.Cfg.Train.GradAccumulation == 0 {
		all[microKey] = json.RawMessage(strconv.Itoa(r.Process.Cfg.Train.MicroBatches()))
	}
	return all
}

// microKey is the key under which a checkpoint stores the number of micro-batches that the program chose.
const microKey = "micro_batches"
