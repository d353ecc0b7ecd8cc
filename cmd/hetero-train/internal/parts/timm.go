package parts

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// timmModel is implemented by the options of image models that the Python library timm also has. Such a model has the
// same name and the same tensor names in timm. The library transformers loads these models through timm.
type timmModel interface {
	ModelOptions
	// timm returns the number of features that the classifier reads, or an error if timm lacks the model with these
	// settings.
	timm() (features int, err error)
}

// timm implements [timmModel].
func (o *resnetOptions) timm() (int, error) {
	if o.Stem != "imagenet" {
		return 0, fmt.Errorf("timm has no ResNet with model.stem = %q", o.Stem)
	}
	if o.depth.Bottleneck {
		return 2048, nil
	}
	return 512, nil
}

// TimmFiles returns the contents of files that describe the configured image model to timm and transformers, by file
// name. The files are config.json and, if the preprocessing of the images is known, preprocessor_config.json. The
// parameter outputs is the number of outputs of the classifier.
func TimmFiles(cfg *config.Config, trained Trained, outputs int) (map[string][]byte, error) {
	model, ok := cfg.Model.Options.(timmModel)
	if !ok {
		return nil, exit.Usagef("checkpoint export: --format hf: neither transformers nor timm has a model %s; export it without --format, and load the file by the names of its tensors (safetensors.torch.load_file)",
			cfg.Model.Name)
	}
	features, err := model.timm()
	if err != nil {
		return nil, exit.Usagef("checkpoint export: --format hf: %w; export it without --format", err)
	}
	about := map[string]any{"num_classes": outputs, "first_conv": "conv1", "classifier": "fc", "crop_mode": "center",
		"interpolation": "bilinear", "fixed_input_size": false}
	files := map[string][]byte{}
	if p := trained.Preprocessing; p.Known() {
		about["input_size"], about["mean"], about["std"] = []int{3, p.ImageSize, p.ImageSize}, p.Mean, p.Std
		about["crop_pct"] = cropFraction(p.ImageSize, p.scaled())
		files["preprocessor_config.json"] = indented(map[string]any{"image_processor_type": "BitImageProcessor",
			"do_convert_rgb": true,
			"do_resize":      true, "size": map[string]int{"shortest_edge": p.scaled()}, "resample": 2, // 2: bilinear
			"do_center_crop": true, "crop_size": map[string]int{"height": p.ImageSize, "width": p.ImageSize},
			"do_rescale": true, "rescale_factor": 1.0 / 255, "do_normalize": true, "image_mean": p.Mean,
			"image_std": p.Std})
	}
	top := map[string]any{"architecture": cfg.Model.Name, "num_classes": outputs, "num_features": features,
		"global_pool": "avg", "pretrained_cfg": about}
	if len(trained.Classes) == outputs {
		top["label_names"] = trained.Classes
	}
	files[weights.SettingsFile] = indented(top)
	return files, nil
}

// scaled returns the length of the shorter side before the centre crop, in pixels.
func (p Preprocessing) scaled() int {
	if p.Resize > 0 {
		return p.Resize
	}
	return p.ImageSize
}

// cropFraction returns a fraction for timm, which computes the length of the shorter side as the integer part of size /
// fraction.
func cropFraction(size, scaled int) float64 {
	fraction := float64(size) / float64(scaled)
	for int(float64(size)/fraction) < scaled { // correct rounding errors
		fraction = math.Nextafter(fraction, 0)
	}
	return fraction
}

func indented(v any) []byte {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic(err) // unreachable: texts and finite numbers can always be encoded
	}
	return append(text, '\n')
}
