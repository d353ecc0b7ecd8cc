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
