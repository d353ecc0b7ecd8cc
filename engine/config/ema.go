package config

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
