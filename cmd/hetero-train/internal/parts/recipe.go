package parts

import "github.com/hetero-train/hetero-train/engine/config"

// recipe contains the settings with which a text model is usually trained. They become the defaults of the model,
// because SGD, the default for image models, hardly trains a transformer.
type recipe struct {
	lr       float64 // published learning rate of this size
	tuneLR   float64 // learning rate for fine-tuning: the weights come from a file
	beta2    float64 // decay rate of the mean of squared gradients
	decay    float64 // weight decay
	schedule string
}

// Recipes of the published models.
//
// OpenAI did not publish the learning rate of GPT-2. The values are those of GPT-3 for models of the same size (Brown
// et al. 2020, table 2.1). The values for BERT come from Devlin et al. 2018, appendix A.2, and A.3 for fine-tuning.
var (
	gpt2Recipes = map[string]recipe{
		"gpt2":        {6e-4, 5e-5, 0.95, 0.1, "cosine"},
		"gpt2-medium": {3e-4, 5e-5, 0.95, 0.1, "cosine"},
		"gpt2-large":  {2.5e-4, 5e-5, 0.95, 0.1, "cosine"},
		"gpt2-xl":     {2e-4, 5e-5, 0.95, 0.1, "cosine"},
	}
	bertRecipe = recipe{1e-4, 3e-5, 0.999, 0.01, "linear"}
	// otherRecipe is for language models of other modules, whose size is unknown.
	otherRecipe = recipe{3e-4, 5e-5, 0.999, 0.01, "linear"}
)

const (
	// usualWarmup is the length of the warm-up in steps. Without a warm-up, the first updates of Adam are too large,
	// because its averages have not settled. A longer warm-up wastes steps of short runs.
	usualWarmup = 100
	// usualClip is the usual maximum norm of the gradient.
	usualClip = 1.0
)

// small lists the learning rates of models with fewer channels than the published models. Published learning rates are
// higher for models with fewer channels. At 1e-4, a BERT of 64 channels needs about ten times as many steps as at the
// rate in this list. configs/bert_tiny.toml and configs/gpt2_shakespeare.toml use the same rates.
var small = []struct {
	least, most float64 // range of the number of channels
	lr          float64
}{{1, 64, 3e-3}, {65, 256, 1e-3}}

// defaults returns the defaults of the keys. The parameter sized states whether the model has the key
// model.embedding_size.
func (r recipe) defaults(sized bool) []config.DefaultValue {
	adamw, fromFile := config.Is("optimizer.name", "adamw"), config.IsNot("model.init_from", "")
	all := []config.DefaultValue{
		{Key: "train.clip_norm", Value: usualClip},
		{Key: "optimizer.name", Value: "adamw"},
		{Key: "optimizer.lr", Value: r.tuneLR, Needs: []config.Need{adamw, fromFile}},
	}
	if sized {
		for _, s := range small {
			all = append(all, config.DefaultValue{Key: "optimizer.lr", Value: s.lr,
				Needs: []config.Need{adamw, config.Between("model.embedding_size", s.least, s.most)}})
		}
	}
	return append(all,
		config.DefaultValue{Key: "optimizer.lr", Value: r.lr, Needs: []config.Need{adamw}},
		config.DefaultValue{Key: "optimizer.weight_decay", Value: r.decay, Needs: []config.Need{adamw}},
		config.DefaultValue{Key: "optimizer.betas", Value: []float64{0.9, r.beta2}, Needs: []config.Need{adamw}},
		// a falling learning rate is possible only if the length of the run is known
		config.DefaultValue{Key: "schedule.name", Value: r.schedule,
			Needs: []config.Need{config.Any(config.IsNot("train.epochs", 0), config.IsNot("train.steps", 0))}},
		config.DefaultValue{Key: "schedule.warmup_steps", Value: usualWarmup,
			Needs: []config.Need{config.Is("schedule.warmup_epochs", 0.0)}},
	)
}
