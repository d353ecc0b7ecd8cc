package parts

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/balancer/policies"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/cifar"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/resnet"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
)

// Builtin lists the models, data sets and policies of this program. Another program adds its own components through
// [Main].
var Builtin = append([]Part{
	Model{"simple_cnn", "blocks of two convolutions, for small images", func() ModelOptions {
		return new(simpleCNNOptions)
	}, nil},
	resnetModel("resnet18", "11.7 million parameters"),
	resnetModel("resnet34", "21.8 million parameters"),
	resnetModel("resnet50", "25.6 million parameters"),
	resnetModel("resnet101", "44.5 million parameters"),
	resnetModel("resnet152", "60.2 million parameters"),
	gpt2Model("gpt2", "gpt2", "124 million parameters"),
	gpt2Model("gpt2_medium", "gpt2-medium", "355 million parameters"),
	gpt2Model("gpt2_large", "gpt2-large", "774 million parameters"),
	gpt2Model("gpt2_xl", "gpt2-xl", "1,558 million parameters"),
	bertModel("bert_base", "109.5 million parameters"),
	bertModel("bert_large", "335.2 million parameters"),

	imageSet("synthetic_image", "images computed from the seed, in classes that a model can learn to tell apart",
		func() builtinImages { return syntheticImages{} },
		config.DataTraits{Computed: true}),
	cifarSet("60,000 photographs of 32x32 pixels in 10 classes, downloaded if missing",
		cifarImages{variant: cifar.Ten, count: 10, norm: data.NormalizeCIFAR10}),
	cifarSet("60,000 photographs of 32x32 pixels in 100 classes, downloaded if missing",
		cifarImages{variant: cifar.Hundred, count: 100, norm: data.NormalizeCIFAR100}),
	imageSet("images", "image files with one folder per class, or ImageNet as distributed",
		func() builtinImages { return imageFiles{} }, withValPath(photos)),
	imageSet("webdataset", "WebDataset shards: `.tar`, `.tar.gz` or `.tar.zst` files with `KEY.jpg` and `KEY.cls`",
		func() builtinImages { return shards{} }, withValPath(photos)),
	anyData{HuggingFace, "a data set of Hugging Face's `datasets`: a folder of `save_to_disk`, of its cache, Parquet files, or a list of images such as `metadata.csv`; images, texts with classes, or token lists, as the model reads them",
		func() anyDataOptions { return new(huggingFace) }, photos},
	tokenSet("synthetic_text",
		"tokens of a Markov source, computed from the seed; its known entropy is the lowest possible loss",
		func() builtinTokens { return new(syntheticText) },
		config.DataTraits{Computed: true}),
	tokenSet("text", "token files of `hetero-train data tokenize`, llm.c or nanoGPT",
		func() builtinTokens { return new(textFiles) }, config.DataTraits{NeedsPath: true, ValPath: true}),
	tokenSet(LabelledText, "texts with classes, in a file of tab-separated values or of JSON lines",
		func() builtinTokens { return new(labelledText) }, config.DataTraits{ValPath: true}),
}, builtinPolicies()...)

// BuiltinCatalog is the catalog of the components in Builtin.
var BuiltinCatalog = func() config.Catalog {
	c, err := CatalogOf(Builtin)
	if err != nil {
		panic(err)
	}
	return c
}()

// photos are the traits of data sets of photographs with any number of pixels.
var photos = config.DataTraits{NeedsPath: true, ImageSize: 224, RandomResizedCrop: true, Flip: true}

// withValPath returns the traits of a data set that also reads data.val_path.
func withValPath(t config.DataTraits) config.DataTraits {
	t.ValPath = true
	return t
}

// imageSet returns a built-in data set of images.
func imageSet(name, doc string, make func() builtinImages, traits config.DataTraits) DataSet {
	return DataSet{name, doc, func() DataSetOptions { return make() }, traits}
}

// tokenSet returns a built-in data set of text.
func tokenSet(name, doc string, make func() builtinTokens, traits config.DataTraits) TokenData {
	return TokenData{name, doc, func() TokenDataOptions { return make() }, traits}
}

func resnetModel(name, size string) Model {
	return Model{name, "torchvision's ResNet, " + size + " with 1,000 classes",
		func() ModelOptions { return &resnetOptions{depth: resnet.Family[name]} }, nil}
}

func cifarSet(doc string, set cifarImages) DataSet {
	return imageSet(set.variant.Name, doc, func() builtinImages { return set },
		config.DataTraits{CropPadding: 4, Flip: true})
}

// builtinPolicies returns the policies of package policies.
func builtinPolicies() []Part {
	var list []Part
	for _, m := range policies.Makers() {
		list = append(list, Policy{m.Name, m.Doc, func() PolicyOptions { return balancerPolicy{name: m.Name} }})
	}
	return list
}

// balancerPolicy is a policy of package policies. Such a policy has no keys of its own in table [balance].
type balancerPolicy struct {
	NoKeys
	name string // not the maker: options are compared, and functions cannot be
}

func (p balancerPolicy) maker() balancer.Maker {
	all := policies.Makers()
	return all[slices.IndexFunc(all, func(m balancer.Maker) bool { return m.Name == p.name })]
}

// Ignores implements [config.Ignorer].
func (p balancerPolicy) Ignores() []string {
	if p.maker().Objectives {
		return nil
	}
	return []string{"objective", "max_slowdown_percent", "power_watts", "idle_watts", "prices", "bench_worthless"}
}

// New implements [PolicyOptions].
func (p balancerPolicy) New(o balancer.Options) (balancer.Policy, error) { return p.maker().New(o) }

// PolicyTraits implements [TraitsOfPolicy].
func (p balancerPolicy) PolicyTraits() balancer.Traits { return p.maker().Traits }

// simpleCNNOptions are the keys of table [model] for simple_cnn.
type simpleCNNOptions struct {
	Channels []int // output channels of each block
	Dropout  float64
}

// Keys returns the keys of simple_cnn.
func (o *simpleCNNOptions) Keys() []config.Key {
	return []config.Key{
		config.Ints(&o.Channels, "channels", 32, 64, 128).Learnt().Shapes().Unit("channels").NotEmpty().AtLeast(1).
			AtMost(4096).
			Doc("Number of channels of each block. A block has two 3x3 convolutions with BatchNorm and ReLU, then 2x2 max pooling."),
		config.Float(&o.Dropout, "dropout", 0).Learnt().Below(1).
			Doc("Dropout before the classifier: fraction of the features that training sets to zero."),
	}
}

// Build implements [ModelOptions].
func (o *simpleCNNOptions) Build() models.Classifier {
	return simplecnn.Build(simplecnn.Options{Channels: o.Channels, Dropout: o.Dropout})
}

// resnetOptions are the keys of table [model] for the ResNet family.
type resnetOptions struct {
	depth resnet.Depth

	Stem             string // "imagenet" or "cifar"
	ZeroInitResidual bool
	StochasticDepth  float64
}

// Keys returns the keys of the ResNet family.
func (o *resnetOptions) Keys() []config.Key {
	return []config.Key{
		config.Choice(&o.Stem, "stem", "imagenet", "imagenet", "cifar").Learnt().Shapes().
			Doc("First layers. `imagenet`: 7x7 convolution of stride 2 and max pooling, as in torchvision. The residual stages get images of a quarter of the height and width. `cifar`: 3x3 convolution of stride 1, no pooling. The residual stages get images of full size. This is more accurate on small images, and needs about 16 times the compute."),
		config.Bool(&o.ZeroInitResidual, "zero_init_residual", false).Learnt().
			Doc("Initialises the last BatchNorm weight of each residual branch to zero, so each block starts as the identity."),
		config.Float(&o.StochasticDepth, "stochastic_depth", 0).Learnt().Below(1).
			Doc("Stochastic depth: probability of dropping the residual branch of the last block for a sample. It decreases linearly over the earlier blocks, down to 0 at the first, as in timm's `--drop-path`. A branch that is kept is scaled by 1/(1 - p). Usual: 0.05 to 0.2, to reduce overfitting of long runs. 0: off."),
	}
}

// Build implements [ModelOptions].
func (o *resnetOptions) Build() models.Classifier {
	return resnet.Build(o.depth, resnet.Options{CIFARStem: o.Stem == "cifar", ZeroInitResidual: o.ZeroInitResidual,
		StochasticDepth: o.StochasticDepth})
}
