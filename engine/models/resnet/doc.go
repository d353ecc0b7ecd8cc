// Package resnet implements the ResNet family of He et al., "Deep Residual Learning for Image Recognition" (2015), as
// in torchvision. It is version 1.5: in a bottleneck block, the 3x3 convolution is strided, not the 1x1 convolution
// before it. Parameter names are those of torchvision.
package resnet
