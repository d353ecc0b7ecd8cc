package program

import (
	"fmt"

	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
)

// warnOfData warns, on rank 0, of settings of the data that do not do what a user may think.
func (j *Run) warnOfData() {
	if j.opts.place.Rank > 0 {
		return
	}
	log := j.opts.logOf(componentData)
	for _, text := range dataWarnings(j.cfg, j.data) {
		log.Warn(text)
	}
}

func dataWarnings(cfg *config.Config, set *dataSet) (texts []string) {
	if origin := cfg.Origin("data.val_fraction"); origin != "" && set.OwnEval {
		texts = append(texts, fmt.Sprintf("data.val_fraction = %g (%s) has no effect: %s has samples of its own for evaluation", cfg.Data.ValFraction, origin, set.name))
	}
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
