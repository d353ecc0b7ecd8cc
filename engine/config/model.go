package config

// Model contains the keys of table [model].
type Model struct {
	Name         string
	BatchNorm    string   // "sync", "local" or "ghost"
	GhostGroup   int      // samples of a group; 0 unless BatchNorm is "ghost"
	InitFrom     string   // path of a .safetensors file or a checkpoint; "" for random weights
	InitHead     string   // "auto", "keep" or "new"
	InitDrop     []string // regular expressions for names of tensors in the file
	NumClasses   int      // 0: number of classes of the data set
	Freeze       []string
	FreezeLayers int
	// Options contains the keys that only this model has. Its type is documented in the package of the model. It is nil
	// if there are no such keys.
	Options Options

	Samples Samples // type of samples that the model reads; not a key
}

// Keys returns the keys that every model has.
func (m *Model) Keys() []Key {
	return each(Key.Learnt, []Key{
		String(&m.Name, "name", "simple_cnn").Shapes().
			Doc("The network. See the list of models below."),
		Choice(&m.BatchNorm, "batch_norm", "sync", "sync", "local", "ghost").
			Doc("Samples over which BatchNorm computes its statistics. `sync`: the micro-batch of all ranks, so the result does not depend on the number of ranks or on shares. `local`: the samples of each rank. `ghost`: groups of `ghost_group` samples, without communication."),
		Int(&m.GhostGroup, "ghost_group", 0).Unit("samples").
			Doc("Size of a group for `batch_norm = \"ghost\"`, at most the size of a micro-batch (`data.batch_size` / `train.grad_accumulation`). If the size of the micro-batch is not a multiple of `ghost_group`, the last group is smaller. Must be 0 for other values of `batch_norm`."),
		String(&m.InitFrom, "init_from", "").Path().Operational().
			Doc("Initial weights: a `.safetensors` file with the model's usual tensor names (`docs/weights.md`), a folder of Hugging Face's `transformers` (GPT-2, BERT), a checkpoint folder, the name or the folder of a run, or a run's `checkpoints/best`. Only rank 0 reads the file. A run that resumes from its own checkpoint ignores this key. Empty: random weights."),
		Choice(&m.InitHead, "init_head", "auto", "auto", "keep", "new").Only(IsNot("model.init_from", "")).
			Doc("Which classifier to use when `init_from` gives the weights. `auto`: the classifier of the file; if the file has none, or has another number or other names of classes, a random classifier, with a warning. The same holds for BERT's other layers behind the encoder. `keep`: the classifier of the file; another number or other names of classes are an error. `new`: a random classifier."),
		Strings(&m.InitDrop, "init_drop").Only(IsNot("model.init_from", "")).
			Doc("Tensors of the file `init_from` to leave out: regular expressions for the names in the file, for example `[\"^queue\"]`. Use it for tensors that the model does not need."),
		Strings(&m.Freeze, "freeze").
			Doc("Parameters that training does not change, by name or by the name of their module: `[\"conv1\", \"layer1\"]`, `[\"*.bias\"]`. `*` matches any text, `?` one character, `[ab]` one of the characters. A BatchNorm with frozen weight and bias uses its running statistics and does not update them."),
		Int(&m.FreezeLayers, "freeze_layers", 0).Unit("layers").
			Doc("Number of layers to freeze, from the input on. Layers are counted as described at `optimizer.layer_decay`: for a ResNet, 1 freezes the stem, and 2 also the first block. 0: none."),
		Int(&m.NumClasses, "num_classes", 0).Unit("classes").AtMost(1 << 20).
			Doc("Outputs of the classifier. 0: the number of classes of the data set."),
	})
}
