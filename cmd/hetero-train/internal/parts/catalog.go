package parts

import (
	"slices"

	"github.com/hetero-train/hetero-train/balancer"
	"github.com/hetero-train/hetero-train/engine/config"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/cifar"
	"github.com/hetero-train/hetero-train/engine/models"
	"github.com/hetero-train/hetero-train/engine/models/resnet"
	"github.com/hetero-train/hetero-train/engine/models/simplecnn"
)

// Builtin are the models, data sets and policies of this program. A program of your own adds to them: see [Main].
var Builtin = append([]Part{
	Model{"simple_cnn", "blocks of two convolutions, for small images", func() ModelOptions { return new(simpleCNNOptions) }},
	resnetModel("resnet18", "11.7 million parameters"),
	resnetModel("resnet34", "21.8 million parameters"),
	resnetModel("resnet50", "25.6 million parameters"),
	resnetModel("resnet101", "44.5 million parameters"),
	resnetModel("resnet152", "60.2 million parameters"),

	DataSet{"synthetic_image", "images computed from the seed, learnable, without files", func() DataSetOptions { return syntheticImages{} },
		config.DataTraits{Computed: true}},
	cifarSet("60,000 photographs of 32x32 pixels in 10 classes, downloaded if missing", cifarImages{variant: cifar.Ten, count: 10, norm: data.NormalizeCIFAR10}),
	cifarSet("the same size in 100 classes", cifarImages{variant: cifar.Hundred, count: 100, norm: data.NormalizeCIFAR100}),
	DataSet{"images", "your own JPEG and PNG files, one folder per class; ImageNet in any of its forms", func() DataSetOptions { return imageFiles{} }, photos},
	DataSet{"webdataset", "WebDataset shards: `.tar`, `.tar.gz` or `.tar.zst` with `KEY.jpg` and `KEY.cls`, read in place", func() DataSetOptions { return shards{} }, photos},
}, policies()...)

// BuiltinCatalog lists the models, data sets and policies of this program.
var BuiltinCatalog = func() config.Catalog {
	c, err := CatalogOf(Builtin)
	if err != nil {
		panic(err)
	}
	return c
}()

// photos are the traits of data sets of photographs of any size.
var photos = config.DataTraits{NeedsPath: true, ImageSize: 224, RandomResizedCrop: true, Flip: true}

func resnetModel(name, size string) Model {
	return Model{name, "ResNet as torchvision builds it, " + size + " with 1,000 classes",
		func() ModelOptions { return &resnetOptions{depth: resnet.Family[name]} }}
}

func cifarSet(doc string, set cifarImages) DataSet {
	return DataSet{set.variant.Name, doc, func() DataSetOptions { return set }, config.DataTraits{CropPadding: 4, Flip: true}}
}

// policies are those of the balancer.
func policies() []Part {
	var list []Part
	for _, m := range balancer.Makers() {
		list = append(list, Policy{m.Name, m.Doc, func() PolicyOptions { return balancerPolicy{name: m.Name} }})
	}
	return list
}

// balancerPolicy is a policy of the balancer; its settings are the common keys of [balance].
type balancerPolicy struct {
	NoKeys
	name string
}

// Ignores implements [config.Ignorer].
func (p balancerPolicy) Ignores() []string {
	if p.name == "hybrid" {
		return nil
	}
	return []string{"objective", "max_slowdown_percent", "power_watts", "idle_watts", "prices", "bench_worthless"}
}

// New implements [PolicyOptions].
func (p balancerPolicy) New(o balancer.Options) (balancer.Policy, error) {
	makers := balancer.Makers()
	return makers[slices.IndexFunc(makers, func(m balancer.Maker) bool { return m.Name == p.name })].New(o)
}

// simpleCNNOptions are the keys of simple_cnn.
type simpleCNNOptions struct {
	Channels []int // of each block
	Dropout  float64
}

// Keys lists them.
func (o *simpleCNNOptions) Keys() []config.Key {
	return []config.Key{
		config.Ints(&o.Channels, "channels", 32, 64, 128).Learnt().Shapes().Unit("channels").NotEmpty().AtLeast(1).AtMost(4096).
			Doc("Channels of each block, one block for each number. A block is two 3x3 convolutions with BatchNorm and ReLU, then 2x2 max pooling."),
		config.Float(&o.Dropout, "dropout", 0).Learnt().Below(1).
			Doc("Fraction of the features that training sets to zero before the classifier."),
	}
}

// Build implements [ModelOptions].
func (o *simpleCNNOptions) Build() models.Classifier {
	return simplecnn.Build(simplecnn.Options{Channels: o.Channels, Dropout: o.Dropout})
}

// resnetOptions are the keys of the ResNet family.
type resnetOptions struct {
	depth resnet.Depth

	Stem             string // imagenet, cifar
	ZeroInitResidual bool
	StochasticDepth  float64
}

// Keys lists them.
func (o *resnetOptions) Keys() []config.Key {
	return []config.Key{
		config.Choice(&o.Stem, "stem", "imagenet", "imagenet", "cifar").Learnt().Shapes().
			Doc("`imagenet`: 7x7 convolution of stride 2 and max pooling, as torchvision; a 32x32 image reaches the stages at 8x8. `cifar`: 3x3 convolution of stride 1, no pooling; it reaches the stages at 32x32, which is more accurate on small images and costs about 16 times the compute."),
		config.Bool(&o.ZeroInitResidual, "zero_init_residual", false).Learnt().
			Doc("Whether the last BatchNorm of each residual branch starts at zero, so that a block starts as the identity."),
		config.Float(&o.StochasticDepth, "stochastic_depth", 0).Learnt().Below(1).
			Doc("Probability of dropping the last block's residual branch for a sample in training; a kept branch is scaled by 1/(1 - p). The probability rises linearly from 0 at the first block, as timm's `--drop-path`. 0.05 to 0.2 reduce overfitting of long runs. 0: none."),
	}
}

// Build implements [ModelOptions].
func (o *resnetOptions) Build() models.Classifier {
	return resnet.Build(o.depth, resnet.Options{CIFARStem: o.Stem == "cifar", ZeroInitResidual: o.ZeroInitResidual, StochasticDepth: o.StochasticDepth})
}
