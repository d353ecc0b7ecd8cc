package assembly

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// warnOfUnused warns, on rank 0, of settings that have no effect or another effect than expected.
func (r *Run) warnOfUnused() {
	if r.Opts.Place.Rank > 0 {
		return
	}
	for _, u := range unusedSettings(r.Cfg, r.actualSettings(), r.Data, r.Opts.Comparison != nil) {
		r.Opts.Log.Warn(u.String())
	}
	for _, text := range dataWarnings(r.Cfg, r.Data) {
		r.Opts.LogOf(logs.ComponentData).Warn(text)
	}
}

// actualSettings returns the values that "auto" selects, if this rank alone can determine them.
func (r *Run) actualSettings() map[string]string {
	actual := map[string]string{}
	kind := r.Device.Info().Kind
	// With other ranks, other kinds of device are possible.
	if r.Opts.Place.WorldSize <= 1 && r.Cfg.Parallel.CPURanks == 0 {
		actual["device.kind"] = kind
	}
	if kind != "cuda" && r.Cfg.Parallel.Backend == "auto" { // NCCL needs a GPU on every rank
		actual["parallel.backend"] = "gloo"
	}
	return actual
}

// unusedSettings returns the settings without effect: those that the configuration reports, and those that depend on
// the data. In an interleaved comparison, the configured policy does not run alone, so its settings are not reported.
func unusedSettings(cfg *config.Config, actual map[string]string, set *parts.Opened, comparison bool) []config.Unused {
	all := cfg.Unused(actual)
	if comparison {
		all = slices.DeleteFunc(all, func(u config.Unused) bool { return strings.HasPrefix(u.Key, "balance.") })
	}
	if set.Tokens != nil {
		all = append(all, unusedOfText(cfg)...)
	}
	if cfg.Origin("data.val_fraction") != "" && set.OwnEval {
		all = append(all, cfg.NoEffect("data.val_fraction", set.Name+" has its own evaluation samples"))
	}
	return all
}

// dataWarnings reports settings that have another effect than their name suggests.
func dataWarnings(cfg *config.Config, set *parts.Opened) (texts []string) {
	stored := cfg.Data.Dataset == "images" || cfg.Data.Dataset == "webdataset"
	if !stored || cfg.Origin("data.image_size") != "" {
		return texts
	}
	if largest := largestSide(set.Train); largest > 0 && largest < cfg.Data.ImageSize {
		texts = append(texts, fmt.Sprintf("images of at most %d pixels are enlarged to %d pixels, the default of data.image_size for %s; set data.image_size to train at another size",
			largest, cfg.Data.ImageSize, cfg.Data.Dataset))
	}
	return texts
}

// largestSide is the longest side, in pixels, of some images spread over the data set; 0 if none of them can be read.
func largestSide(set data.Dataset) (largest int) {
	const looks = 8 // with more samples a rare large image is found sooner, but the start takes longer
	reader, err := set.NewReader()
	if err != nil {
		return 0
	}
	defer reader.Close() // opened for reading only
	for i := range min(looks, set.Len()) {
		var img data.Image
		if reader.Read(i*(set.Len()-1)/max(looks-1, 1), nil, &img) == nil {
			largest = max(largest, img.FullWidth, img.FullHeight, img.Width, img.Height)
		}
	}
	return largest
}

// unusedOfText returns the settings of images that were given for text.
func unusedOfText(cfg *config.Config) (all []config.Unused) {
	for _, s := range cfg.Settings() {
		if (strings.HasPrefix(s.Key, "augment.") || s.Key == "train.label_smoothing") && cfg.Origin(s.Key) != "" {
			all = append(all, cfg.NoEffect(s.Key, "data.dataset = \""+cfg.Data.Dataset+"\" has text, and only images use it"))
		}
	}
	return all
}
