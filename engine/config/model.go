package config

// Model is the [model] table.
type Model struct {
	Name         string
	BatchNorm    string // sync, local, ghost
	GhostGroup   int    // samples; 0 unless BatchNorm is ghost
	InitFrom     string // path of a .safetensors file or a checkpoint, or ""
	InitHead     string // auto, keep, new
	NumClasses   int    // 0 = the data set's
	Freeze       []string
	FreezeLayers int
	// Options contains the keys that only this model has, in the type that its package documents; nil if it has none.
	Options Options
}

// Keys lists the keys that every model has.
func (m *Model) Keys() []Key {
	return each(Key.Learnt, []Key{
		String(&m.Name, "name", "simple_cnn").Shapes().
			Doc("The network, see the list of models below."),
		Choice(&m.BatchNorm, "batch_norm", "sync", "sync", "local", "ghost").
			Doc("Samples for BatchNorm's statistics. `sync`: the whole micro-batch, summed over all ranks, so the result does not depend on the number of ranks or their shares. `local`: each rank's own samples. `ghost`: fixed groups of `ghost_group` samples, without communication."),
		Int(&m.GhostGroup, "ghost_group", 0).Unit("samples").
			Doc("Size of a group for `batch_norm = \"ghost\"`, which requires it; at most the samples of a micro-batch (`data.batch_size` / `train.grad_accumulation`). If it does not divide them, the last group is smaller. 0 for other values of `batch_norm`."),
		String(&m.InitFrom, "init_from", "").Operational().
			Doc("Initial weights: a `.safetensors` file with the model's usual names (`docs/weights.md`), or a checkpoint: its folder, that of its run, or `checkpoints/best`. Only rank 0 reads it. A run that resumes from its own checkpoint ignores it. Empty: random weights."),
		Choice(&m.InitHead, "init_head", "auto", "auto", "keep", "new").Only(IsNot("model.init_from", "")).
			Doc("Treatment of the classifier in `init_from`. `auto`: it is used; if the file has another number of classes or no classifier, a random one replaces it, with a warning. `keep`: another number of classes is an error. `new`: always a random one."),
		Strings(&m.Freeze, "freeze").
			Doc("Parameters that are not trained, by name or by the module that contains them: `[\"conv1\", \"layer1\"]`, `[\"*.bias\"]`. `*` matches any text, `?` one character, `[ab]` one of the characters. A BatchNorm whose weight and bias are frozen uses its running statistics and does not update them."),
		Int(&m.FreezeLayers, "freeze_layers", 0).Unit("layers").
			Doc("Number of layers to freeze, from the first one, counted as for `optimizer.layer_decay`: 1 is a ResNet's stem, 2 also its first block. 0: none."),
		Int(&m.NumClasses, "num_classes", 0).Unit("classes").AtMost(1 << 20).
			Doc("Outputs of the classifier. 0: the number of classes of the data set."),
	})
}
