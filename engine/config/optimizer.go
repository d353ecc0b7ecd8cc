package config

// Optimizer contains the keys of table [optimizer].
type Optimizer struct {
	Name              string // "sgd" or "adamw"
	LR                float64
	Momentum          float64 // used by sgd only
	Nesterov          bool    // used by sgd only
	WeightDecay       float64
	DecayNormsAndBias bool
	LayerDecay        float64
	Betas             []float64 // used by adamw only; two values
	Eps               float64   // used by adamw only
}

// Keys implements [Options].
func (o *Optimizer) Keys() []Key {
	return each(Key.Learnt, []Key{
		Choice(&o.Name, "name", "sgd", "sgd", "adamw").
			Doc("`sgd`: stochastic gradient descent with momentum. `adamw`: Adam with decoupled weight decay."),
		Float(&o.LR, "lr", 0.05).
			If(0.001, Is("optimizer.name", "adamw")).
			Doc("Learning rate at the end of the warm-up."),
		Float(&o.Momentum, "momentum", 0.9).Below(1).Only(Is("optimizer.name", "sgd")).
			Doc("Fraction of the previous update that is added to the next one. 0: no momentum."),
		Bool(&o.Nesterov, "nesterov", false).Only(Is("optimizer.name", "sgd")).
			Doc("Uses Nesterov momentum."),
		Float(&o.WeightDecay, "weight_decay", 0.0005).
			If(0.01, Is("optimizer.name", "adamw")).
			Doc("Weight decay. `sgd` adds `weight_decay * weight` to the gradient. `adamw` subtracts `lr * weight_decay * weight` from the weight."),
		Bool(&o.DecayNormsAndBias, "decay_norms_and_biases", false).Only(IsNot("optimizer.weight_decay", 0.0)).
			Doc("Applies weight decay to biases and to the weights of normalisation layers too, as PyTorch's optimizers do by default."),
		Float(&o.LayerDecay, "layer_decay", 1).Above(0).AtMost(1).
			Doc("Ratio between the learning rates of a layer and of the next layer, as with timm's `layer_decay`. The last layer, the classifier, has the full `lr`. The layers of a ResNet are its stem, each block, and the classifier. The layers of `simple_cnn` are its blocks and the classifier. 1: equal learning rates."),
		Floats(&o.Betas, "betas", 0.9, 0.999).Length(2).NotEmpty().Below(1).Only(Is("optimizer.name", "adamw")).
			Doc("Decay rates of the running means of the gradient and of its square."),
		Float(&o.Eps, "eps", 1e-8).Above(0).Only(Is("optimizer.name", "adamw")).
			Doc("Term added to the root of the mean square, to prevent division by zero."),
	})
}

// Schedule contains the keys of table [schedule].
type Schedule struct {
	Name         string  // "constant", "step", "multistep", "cosine" or "linear"
	WarmupSteps  int     // steps; 0 if WarmupEpochs is not 0
	WarmupEpochs float64 // epochs
	StepSize     int     // epochs
	Milestones   []int   // epochs, in ascending order
	Gamma        float64
	MinLR        float64
}

// Keys implements [Options].
func (s *Schedule) Keys() []Key {
	return each(Key.Learnt, []Key{
		Choice(&s.Name, "name", "constant", "constant", "step", "multistep", "cosine", "linear").
			Doc("Learning rate after the warm-up. `constant`: stays at `optimizer.lr`. `step`: is multiplied by `gamma` every `step_size` epochs. `multistep`: is multiplied by `gamma` at the start of each epoch in `milestones`. `cosine`, `linear`: falls along a cosine or a line to `min_lr` at the end of the run."),
		Int(&s.WarmupSteps, "warmup_steps", 0).Unit("steps").SilentAtEnd(
			"the learning rate never stays at optimizer.lr").
			Doc("Steps of the warm-up, in which the learning rate rises linearly to `optimizer.lr`. Step 1 is part of it. 0: `warmup_epochs` gives the length."),
		Float(&s.WarmupEpochs, "warmup_epochs", 0).Unit("epochs").SilentAtEnd(
			"the learning rate never stays at optimizer.lr").AtMost(1e6).
			Doc("Epochs of the warm-up; fractions are allowed. It is an error to set `warmup_steps` too. 0: `warmup_steps` gives the length; if both are 0, there is no warm-up."),
		Int(&s.StepSize, "step_size", 30).Unit("epochs").SilentAtEnd("the learning rate is never reduced").AtLeast(1).
			Only(Is("schedule.name", "step")).
			Doc("Epochs between two reductions of the learning rate."),
		Ints(&s.Milestones, "milestones").Unit("epochs").SilentAtEnd(
			"the learning rate is not reduced at the later milestones").AtLeast(1).Only(
			Is("schedule.name", "multistep")).
			Doc("Epochs at whose start the learning rate is reduced, in ascending order. Required with `multistep`."),
		Float(&s.Gamma, "gamma", 0.1).Above(0).AtMost(1).Only(Is("schedule.name", "step", "multistep")).
			Doc("Factor of each reduction."),
		Float(&s.MinLR, "min_lr", 0).Only(Is("schedule.name", "cosine", "linear")).
			Doc("Learning rate at the end of the run."),
	})
}

// EMA contains the keys of table [ema].
type EMA struct {
	Decay    float64 // 0: no averages
	Warmup   bool
	Interval int // steps
	Evaluate bool
}

// Keys implements [Options].
func (e *EMA) Keys() []Key {
	return each(Key.Learnt, []Key{
		Float(&e.Decay, "decay", 0).Below(1).
			Doc("Fraction of the averages that an update keeps. The rest of the new averages comes from the weights. Usual: 0.999 for runs of some thousand steps, 0.9999 for longer ones. 0: no averages."),
		Bool(&e.Warmup, "warmup", false).Only(IsNot("ema.decay", 0.0)).
			Doc("In update n, the fraction kept is at most `1 - n^(-2/3)`, as with timm's `--model-ema-warmup`. The averages then follow the weights closely early in training."),
		Int(&e.Interval, "interval", 1).Unit("steps").Silent("the averages are never updated").AtLeast(1).Only(
			IsNot("ema.decay", 0.0)).
			Doc("Steps between two updates of the averages. Each update applies `decay`, so a longer interval needs a smaller `decay`."),
		Bool(&e.Evaluate, "evaluate", true).Only(IsNot("ema.decay", 0.0)).
			Doc("Evaluates the averaged weights, and uses the result for `best` and early stopping. false: evaluates the trained weights."),
	})
}
