package checkpoints

import (
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/parts"
	"github.com/hetero-train/hetero-train/engine/checkpoint"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/weights"
)

// matchNetwork matches the tensors of a file with the configured model. If no number of classes is configured, it
// stores the number of classes of the file in cfg.
func matchNetwork(file *checkpoint.File, cfg *config.Config, o weights.Options) (net parts.Network, fit *weights.Fit,
	err error) {
	describe := func(classes int) error {
		if cfg.Model.Samples == config.Tokens {
			net, err = parts.DescribeText(&cfg.Model, classes)
		} else {
			net, err = parts.DescribeNetwork(&cfg.Model, classes, cfg.Data.ImageSize)
		}
		o.Head = net.Head
		return err
	}
	if cfg.Model.Samples == config.Tokens && textClasses(cfg) == 0 {
		if err := describe(0); err != nil {
			return net, nil, err
		}
		fit, err = weights.Match(file, net.Tensors, o)
		return net, fit, err
	}
	if err := describe(max(cfg.Model.NumClasses, 1)); err != nil {
		return net, nil, err
	}
	if cfg.Model.NumClasses == 0 {
		if cfg.Model.NumClasses, err = weights.Classes(file, net.Tensors, o); err != nil {
			return net, nil, err
		}
		if cfg.Model.NumClasses == 0 {
			return net, nil, exit.Usagef("checkpoint import: %s has no classifier %s: want --num-classes", file.Path(),
				net.Head)
		}
		if err := describe(cfg.Model.NumClasses); err != nil {
			return net, nil, err
		}
	}
	fit, err = weights.Match(file, net.Tensors, o)
	return net, fit, err
}

// textClasses returns the number of classes of a text classifier. It returns 0 for a model that predicts tokens.
func textClasses(cfg *config.Config) int {
	if cfg.Data.Dataset == parts.LabelledText {
		return max(cfg.Model.NumClasses, 1)
	}
	return 0
}
