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
	// Options are the keys that only this model has, of the type its package documents; nil if it has none.
	Options Options
}

// Keys lists the keys that every model has.
func (m *Model) Keys() []Key {
	return each(Key.Learnt, []Key{
		String(&m.Name, "name", "simple_cnn").Shapes().
			Doc("Which network, see the list of models below."),
		Choice(&m.BatchNorm, "batch_norm", "sync", "sync", "local", "ghost").
			Doc("Which samples BatchNorm's statistics are taken over. `sync`: a whole micro-batch on all ranks, so that the result does not depend on the number of ranks or their shares. `local`: each rank's own. `ghost`: fixed groups of `ghost_group` samples, without communication."),
		Int(&m.GhostGroup, "ghost_group", 0).Unit("samples").
			Doc("Size of a group for `batch_norm = \"ghost\"`, where it must be given, at most the samples of a micro-batch (`data.batch_size` / `train.grad_accumulation`); where it does not divide them the last group is smaller. 0 otherwise."),
		String(&m.InitFrom, "init_from", "").Operational().
			Doc("Weights to start from: a `.safetensors` file with the names that users of the model know (`docs/weights.md`), or a checkpoint: its folder, that of its run, or `checkpoints/best`. Only rank 0 reads it. Without effect where a run goes on from a checkpoint of its own. Empty: random."),
		Choice(&m.InitHead, "init_head", "auto", "auto", "keep", "new").
			Doc("What becomes of the classifier in `init_from`. `auto`: it is taken over, unless the file has another number of classes or no classifier; then a random one takes its place, and a warning says so. `keep`: another number of classes is an error. `new`: always a random one."),
		Strings(&m.Freeze, "freeze").
			Doc("Parameters that are not trained, by name or by the module that holds them: `[\"conv1\", \"layer1\"]`, `[\"*.bias\"]`; `*`, `?` and `[ab]` stand for any text, one character, one of them. A BatchNorm whose weight and bias are frozen uses its running statistics and keeps them."),
		Int(&m.FreezeLayers, "freeze_layers", 0).Unit("layers").
			Doc("Number of layers to freeze, from the first one on, counted as `optimizer.layer_decay` counts them: 1 is a ResNet's stem, 2 its first block too. 0: none."),
		Int(&m.NumClasses, "num_classes", 0).Unit("classes").AtMost(1 << 20).
			Doc("Outputs of the classifier. 0: as many as the data set has."),
	})
}
