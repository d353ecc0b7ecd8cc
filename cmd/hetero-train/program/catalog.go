package program

import "github.com/hetero-train/hetero-train/engine/config"

// catalog lists every model and data set, with the keys that it alone has.
var catalog = config.Catalog{
	Models: []config.Kind{
		{Name: "simple_cnn", Doc: "blocks of two convolutions, for small images", Options: func() config.Options { return new(simpleCNNOptions) }},
		resnetKind("resnet18", "11.7 million parameters"),
		resnetKind("resnet34", "21.8 million parameters"),
		resnetKind("resnet50", "25.6 million parameters"),
		resnetKind("resnet101", "44.5 million parameters"),
		resnetKind("resnet152", "60.2 million parameters"),
	},
	DataSets: []config.Kind{
		{Name: "synthetic_image", Doc: "images made from the seed, learnable, without files"},
		{Name: "cifar10", Doc: "60,000 photographs of 32x32 pixels in 10 classes, downloaded where missing"},
		{Name: "cifar100", Doc: "the same size in 100 classes"},
		{Name: "images", Doc: "JPEG and PNG files of your own, a folder for each class; ImageNet in any of its forms"},
		{Name: "webdataset", Doc: "WebDataset shards: `.tar`, `.tar.gz` or `.tar.zst` with `KEY.jpg` and `KEY.cls`, never extracted"},
	},
}

func resnetKind(name, size string) config.Kind {
	return config.Kind{
		Name: name, Doc: "ResNet as torchvision builds it, " + size + " with 1,000 classes",
		Options: func() config.Options { return new(resnetOptions) },
	}
}

// simpleCNNOptions are the keys of simple_cnn.
type simpleCNNOptions struct {
	Channels []int // of each block
	Dropout  float64
}

// Keys lists them.
func (o *simpleCNNOptions) Keys() []config.Key {
	return []config.Key{
		config.Ints(&o.Channels, "channels", 32, 64, 128).Shapes().Unit("channels").NotEmpty().AtLeast(1).AtMost(4096).
			Doc("Channels of each block, one block for each number. A block is two 3x3 convolutions with BatchNorm and ReLU, then 2x2 max pooling."),
		config.Float(&o.Dropout, "dropout", 0).Below(1).
			Doc("Share of the features set to zero before the classifier while training."),
	}
}

// resnetOptions are the keys of the ResNet family.
type resnetOptions struct {
	Stem             string // imagenet, cifar
	ZeroInitResidual bool
	StochasticDepth  float64
}

// Keys lists them.
func (o *resnetOptions) Keys() []config.Key {
	return []config.Key{
		config.Choice(&o.Stem, "stem", "imagenet", "imagenet", "cifar").Shapes().
			Doc("`imagenet`: 7x7 convolution of stride 2 and max pooling, as torchvision: a 32x32 image reaches the stages at 8x8. `cifar`: 3x3 convolution of stride 1, no pooling: it reaches them at 32x32, which is more accurate on small images and costs about 16 times the compute."),
		config.Bool(&o.ZeroInitResidual, "zero_init_residual", false).
			Doc("Whether the last BatchNorm of each residual branch starts at zero, so that a block starts as the identity."),
		config.Float(&o.StochasticDepth, "stochastic_depth", 0).Below(1).
			Doc("Probability with which the last block's residual branch is dropped for a sample while training, and is 1/(1 - p) times as large otherwise; from 0 at the first block on it rises in a straight line, as timm's `--drop-path`. 0.05 to 0.2 against overfitting of long runs. 0: none."),
	}
}
