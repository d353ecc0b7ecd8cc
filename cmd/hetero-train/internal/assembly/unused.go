package assembly

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// warnOfUnused warns, on rank 0, of settings that have no effect, and of settings with an unexpected effect.
func (r *Run) warnOfUnused() {
	if r.Process.Opts.Assignment.Rank > 0 {
		return
	}
	for _, u := range unusedSettings(r.Process.Cfg, r.actualSettings(), r.Data, r.Process.Opts.Comparison != nil) {
		r.Process.Opts.Log.Warn(u.String())
	}
	for _, text := range dataWarnings(r.Process.Cfg, r.Data) {
		r.Process.Opts.LogOf(logs.ComponentData).Warn(text)
	}
}

// warnOfLength warns, on rank 0, of configured periods that are longer than the run, such as a warm-up.
func (r *Run) warnOfLength() {
	if r.Process.Opts.Assignment.Rank > 0 || r.Process.Opts.Comparison != nil {
		return
	}
	length := config.Length{Steps: r.Steps, StepsPerEpoch: r.StepsPer, Seconds: r.Process.Cfg.Train.MaxSeconds}
	for _, text := range r.Process.Cfg.BeyondEnd(length) {
		r.Process.Opts.Log.Warn(text)
	}
}

// actualSettings returns the values that "auto" selects. It leaves out settings that this rank cannot determine alone.
func (r *Run) actualSettings() map[string]string {
	actual := map[string]string{}
	kind := r.Rank.Device.Info().Kind
	// Other ranks can have another kind of device.
	if r.Process.Opts.Assignment.WorldSize <= 1 && r.Process.Cfg.Parallel.CPURanks == 0 {
		actual["device.kind"] = kind
	}
	if kind != "cuda" && r.Process.Cfg.Parallel.Backend == "auto" { // NCCL needs a GPU on every rank
		actual["parallel.backend"] = "gloo"
	}
	return actual
}

// unusedSettings returns the settings that other settings or the data make ineffective. In an interleaved comparison,
// it leaves out table [balance], because the comparison runs several policies.
func unusedSettings(cfg *config.Config, actual map[string]string, set *parts.Opened, comparison bool) []config.Unused {
	all := cfg.Unused(actual)
	if comparison {
		all = slices.DeleteFunc(all, func(u config.Unused) bool { return strings.HasPrefix(u.Key, "balance.") })
	}
	if set.Tokens != nil {
		all = append(all, unusedOfText(cfg, set)...)
	}
	if cfg.Origin("data.val_fraction") != "" && set.OwnEval {
		all = append(all, cfg.NoEffect("data.val_fraction", set.Name+" has its own evaluation samples"))
	}
	return all
}

// dataWarnings returns warnings about settings whose effect on these data is probably not intended.
func dataWarnings(cfg *config.Config, set *parts.Opened) (texts []string) {
	if missing := untrained(set); len(missing) > 0 {
		texts = append(texts, "the model cannot learn classes of the evaluation that have no training sample: "+
			weights.DescribeClasses(missing))
	}
	if set.Tokens != nil || cfg.DefaultOf("data.image_size") != cfg.Data.Dataset {
		return texts // the data set does not determine the image size
	}
	if largest := largestSide(set.Train); largest > 0 && largest < cfg.Data.ImageSize {
		texts = append(texts, fmt.Sprintf("images of at most %d pixels are enlarged to %d pixels, the default of data.image_size for %s; set data.image_size to train at another size",
			largest, cfg.Data.ImageSize, cfg.Data.Dataset))
	}
	return texts
}

// largestSide reads several images that are evenly spaced in the data set, and returns their longest side in pixels. It
// returns 0 if it can read none of them.
func largestSide(set data.Dataset) (largest int) {
	const looks = 8 // number of images; a larger number finds rare large images more often, but delays the start
	reader, err := set.NewReader()
	if err != nil {
		return 0
	}
	defer reader.Close() // no error: the file was only read
	for i := range min(looks, set.Len()) {
		var img data.Image
		if reader.Read(i*(set.Len()-1)/max(looks-1, 1), nil, &img) == nil {
			largest = max(largest, img.FullWidth, img.FullHeight, img.Width, img.Height)
		}
	}
	return largest
}

// unusedOfText returns the settings that the user has set but that the text data set or the model does not use.
func unusedOfText(cfg *config.Config, set *parts.Opened) (all []config.Unused) {
	none := func(why string, keys ...string) {
		for _, key := range keys {
			if cfg.Origin(key) != "" {
				all = append(all, cfg.NoEffect(key, why))
			}
		}
	}
	for _, s := range cfg.Settings() {
		if strings.HasPrefix(s.Key, "augment.") {
			none("data.dataset = \""+cfg.Data.Dataset+"\" contains text, and this key applies to images only", s.Key)
		}
	}
	labelled, masks := set.Classes() != nil, parts.Masks(&cfg.Model)
	classless := "data.dataset = \"" + cfg.Data.Dataset + "\" has no classes"
	if !labelled {
		none(classless, "train.label_smoothing")
	}
	if !labelled && masks { // models of the next token ignore these keys anyway
		none(classless, "model.init_head", "model.num_classes")
	}
	if !labelled && !masks {
		none("model.name = \""+cfg.Model.Name+
			"\" predicts the next token, and this key applies to models of masked tokens only", parts.MaskedKeys...)
	}
	if labelled {
		none("data.dataset = \""+cfg.Data.Dataset+"\" has classes, and only the prediction of masked tokens uses it",
			"model.next_sentence")
	}
	if t := set.Tokens; t.Shorter == nil {
		none("all samples have the same length, or their lengths are unknown", "data.group_by_length")
	}
	if labelled && cfg.Data.ValPath != "" {
		none("data.val_path has the evaluation samples", "data.val_fraction")
	}
	return all
}

// untrained returns the image classes that have evaluation samples but no training samples.
func untrained(set *parts.Opened) (missing []string) {
	if set.Tokens != nil || set.Eval == nil || set.Splits.Same {
		return nil
	}
	names := set.Classes()
	count := func(part data.Dataset) []int {
		counts := make([]int, len(names))
		for i := range part.Len() {
			label := part.Label(i)
			if set.Sets == nil {
				counts[label]++
				continue
			}
			for _, one := range set.Sets.Sets[label] {
				counts[one]++
			}
		}
		return counts
	}
	trained, evaluated := count(set.Train), count(set.Eval)
	for i, n := range evaluated {
		if n > 0 && trained[i] == 0 {
			missing = append(missing, names[i])
		}
	}
	return missing
}
