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

// warnOfUnused warns, on rank 0, of settings that were set and do not do what a user may think.
func (j *Run) warnOfUnused() {
	if j.Opts.Place.Rank > 0 {
		return
	}
	for _, u := range unusedSettings(j.Cfg, j.actualSettings(), j.Data, j.Opts.Contest != nil) {
		j.Opts.Log.Warn(u.String())
	}
	for _, text := range dataWarnings(j.Cfg, j.Data) {
		j.Opts.LogOf(logs.ComponentData).Warn(text)
	}
}

// actualSettings are the values that "auto" stands for, as far as this rank alone knows them.
func (j *Run) actualSettings() map[string]string {
	actual := map[string]string{}
	kind := j.Device.Info().Kind
	if j.Opts.Place.WorldSize <= 1 && j.Cfg.Parallel.CPURanks == 0 { // else other ranks may be on other kinds of device
		actual["device.kind"] = kind
	}
	if kind != "cuda" && j.Cfg.Parallel.Backend == "auto" { // NCCL wants a GPU on every rank
		actual["parallel.backend"] = "gloo"
	}
	return actual
}

// unusedSettings are the settings without effect: those of which the configuration knows, and those that depend on the data. A contest
// of policies tries others than the configured one.
func unusedSettings(cfg *config.Config, actual map[string]string, set *parts.Opened, contest bool) []config.Unused {
	all := cfg.Unused(actual)
	if contest {
		all = slices.DeleteFunc(all, func(u config.Unused) bool { return strings.HasPrefix(u.Key, "balance.") })
	}
	if cfg.Origin("data.val_fraction") != "" && set.OwnEval {
		all = append(all, cfg.NoEffect("data.val_fraction", set.Name+" has samples of its own for evaluation"))
	}
	return all
}

// dataWarnings are about settings that have another effect than they seem to.
func dataWarnings(cfg *config.Config, set *parts.Opened) (texts []string) {
	stored := cfg.Data.Dataset == "images" || cfg.Data.Dataset == "webdataset"
	if !stored || cfg.Origin("data.image_size") != "" {
		return texts
	}
	if largest := largestSide(set.Train); largest > 0 && largest < cfg.Data.ImageSize {
		texts = append(texts, fmt.Sprintf("images of up to %d pixels are scaled up to %d, the default of data.image_size for %s: set data.image_size to train at another size",
			largest, cfg.Data.ImageSize, cfg.Data.Dataset))
	}
	return texts
}

// largestSide is the longest side, in pixels, of a few images spread over the data set; 0 where none of them can be read.
func largestSide(set data.Dataset) (largest int) {
	const looks = 8 // more find a rare large image sooner and take longer
	reader, err := set.NewReader()
	if err != nil {
		return 0
	}
	defer reader.Close() // was only read
	for i := range min(looks, set.Len()) {
		var img data.Image
		if reader.Read(i*(set.Len()-1)/max(looks-1, 1), nil, &img) == nil {
			largest = max(largest, img.FullWidth, img.FullHeight, img.Width, img.Height)
		}
	}
	return largest
}
