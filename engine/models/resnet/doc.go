// Package resnet implements the ResNet family of He et al., "Deep Residual Learning for Image Recognition" (2015), as
// in torchvision (v1.5: the 3x3 convolution of a bottleneck has the stride), with torchvision's parameter names.
package resnet
