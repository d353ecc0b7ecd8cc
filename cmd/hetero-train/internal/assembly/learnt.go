package assembly

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/experiment"
)

// learntKey is the key of the derived values in a checkpoint.
const learntKey = "learnt"

// derived maps keys to values that the text of a setting does not contain: the type that "auto" selected, the data set
// that data.fallback selected, the content of a file. If both runs have a derived value, it is compared instead of the
// text.
type derived map[string]string

// Derive computes the derived values of this run. Only rank 0's values are used.
func (r *Run) Derive() (derived, error) {
	classes, err := r.classes()
	if err != nil {
		return nil, err
	}
	d := derived{
		"data.dataset":      strconv.Quote(r.Data.Name),
		dataPathKey:         r.Data.Identity,
		precisionKey:        strconv.Quote(r.Precision.String()),
		"model.num_classes": strconv.Itoa(classes),
	}
	if r.Cfg.Model.BatchNorm == "local" { // statistics depend on the share of a rank
		d["parallel.ranks"] = strconv.Itoa(max(r.Opts.Place.WorldSize, 1))
	}
	if r.Falls() {
		d[totalKey] = strconv.FormatInt(r.Steps, 10)
	}
	if content, ok := r.initContent(); ok {
		d[initKey] = content
	}
	return d, nil
}

// Keys of paths that are compared by content.
const (
	dataPathKey = "data.path"
	initKey     = "model.init_from"
)

// precisionKey is compared as the type that "auto" selected.
const (
	precisionKey = "train.precision"
)

// totalKey is the number of steps of the whole run, whichever setting limits them. It is derived only if the schedule
// depends on it.
const totalKey = "train.steps"

// Falls reports whether the learning rate depends on the length of the run.
func (r *Run) Falls() bool { return r.Cfg.Schedule.Name == "cosine" || r.Cfg.Schedule.Name == "linear" }

// lengthKey is the key of the setting that limits the run.
func lengthKey(c *config.Config) string {
	switch {
	case c.Train.Steps > 0:
		return "train.steps"
	case c.Train.Epochs > 0:
		return "train.epochs"
	}
	return "train.max_seconds"
}

// Length names the setting that ends the run, with its value.
func (r *Run) Length() string {
	t := r.Cfg.Train
	switch key := lengthKey(r.Cfg); key {
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

// initContent returns a digest of the initial weights; "" if there are none, or if their file no longer exists. A
// resumed run does not need the weights. A run that starts reports a missing file when it loads the weights.
func (r *Run) initContent() (content string, known bool) {
	path := r.Cfg.Model.InitFrom
	if path == "" {
		return "", true
	}
	f, err := parts.OpenWeights(path, func(error) {}) // skipped entries are reported when the weights are loaded
	if err != nil {
		return "", false
	}
	defer f.Close()
	content, err = parts.ContentOf(f.File)
	return content, err == nil
}

// compare lists the changed settings that affect training results; see experiment.Options.
func (r *Run) compare(e experiment.Earlier) ([]experiment.Change, error) {
	old, err := config.Parse(e.From, []byte(e.Config), r.Opts.Env.Catalog)
	if err != nil {
		if !r.Named() && r.Cfg.Train.Resume == experiment.ResumeAuto {
			return []experiment.Change{{Key: "configuration", Old: "unreadable", New: "another"}}, nil
		}
		r.Opts.Log.Warn("the settings of the earlier run are not compared, because they cannot be read", "error", err)
		return nil, nil
	}
	before := derived{}
	if raw, ok := e.Extra[learntKey]; ok {
		if err := json.Unmarshal(raw, &before); err != nil {
			return nil, exit.With(exit.Data, fmt.Errorf("%s: derived settings: %w", e.From, err))
		}
	} else if r := e.Result; r != nil {
		rank0, _, _ := strings.Cut(r.Precision, " ") // precision is "bf16 (ranks 0, 1), f32 (rank 2)" if ranks differ
		before["data.dataset"], before[precisionKey] = strconv.Quote(r.Dataset), strconv.Quote(rank0)
	}
	return r.changes(old, before), nil
}

// changes compares the runs key by key.
func (r *Run) changes(old *config.Config, before derived) []experiment.Change {
	texts := map[string]config.Difference{}
	for _, d := range config.Diff(old, r.Cfg) {
		texts[d.Key] = d
	}
	// "auto" keeps the type of the checkpoint if the device supports it. If not, the device has changed, which does not
	// count as a change of the setting.
	adapts := r.Cfg.Train.Precision == "auto"
	var all []experiment.Change
	add := func(key, was, now string) {
		if key == "data.batch_size" && slices.ContainsFunc(r.Opts.Args, func(arg string) bool { return strings.HasPrefix(arg, "--batch-size") }) {
			now += fmt.Sprintf(" (--batch-size for each of %d ranks; --set data.batch_size=%s keeps the global batch)", max(r.Opts.Place.WorldSize, 1), was)
		}
		if !slices.Contains(r.Opts.Allow, key) {
			all = append(all, experiment.Change{Key: key, Old: was, New: now})
		}
	}
	for _, d := range texts {
		if d.Key == precisionKey && adapts {
			continue
		}
		_, known := before[d.Key]
		_, knownNow := r.Learnt[d.Key]
		if (d.Learnt || d.Key == dataPathKey || d.Key == initKey) && (!known || !knownNow) {
			add(d.Key, orNone(d.Old), orNone(d.New))
		}
	}
	for key, now := range r.Learnt {
		was, known := before[key]
		if !known || was == now || key == precisionKey && adapts || key == totalKey && r.Named() {
			continue // a named run may become longer; its learning rate then follows the schedule of the new length
		}
		if d, differs := texts[key]; differs && key != totalKey && d.Old != was {
			was, now = d.Old+" ("+was+")", d.New+" ("+now+")"
		}
		if key == totalKey {
			key, was, now = lengthKey(r.Cfg), was+" steps (schedule.name = "+strconv.Quote(r.Cfg.Schedule.Name)+")", now+" steps"
		}
		add(key, orNone(was), orNone(now))
	}
	order := settingsOrder(r.Cfg)
	slices.SortFunc(all, func(a, b experiment.Change) int {
		if d := order[a.Key] - order[b.Key]; d != 0 {
			return d
		}
		return strings.Compare(a.Key, b.Key)
	})
	return all
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

// Allowable checks that each key of --allow exists and affects training results.
func Allowable(c *config.Config, keys []string) error {
	if len(keys) > 0 && c.Train.Resume == experiment.ResumeNone {
		return exit.Usagef("--allow: has no meaning with --resume none, which starts a new run")
	}
	byContent := []string{dataPathKey, initKey, "parallel.ranks", totalKey, "train.epochs"}
	order := settingsOrder(c)
	for _, key := range keys {
		affects, known := c.Learnt(key)
		switch {
		case !known:
			near := config.Nearest(key, slices.Sorted(maps.Keys(order)), 1)
			return exit.Usagef("--allow: unknown key (got %q, want table.key, nearest: %s)", key, strings.Join(near, ", "))
		case !affects && !slices.Contains(byContent, key):
			return exit.Usagef("--allow: %s does not need --allow, because it does not affect training results", key)
		}
	}
	return nil
}

// Extra returns the values that the program, not the training loop, adds to a checkpoint.
func (r *Run) Extra() map[string]json.RawMessage {
	all := r.trainedOn()
	text, err := json.Marshal(r.Learnt)
	if err != nil {
		panic(err) // strings can always be encoded
	}
	all[learntKey] = text
	return all
}
