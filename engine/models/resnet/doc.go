// Package resnet is the ResNet family of He et al., "Deep Residual Learning for Image Recognition" (2015), as
// torchvision builds it (v1.5: a bottleneck strides in its 3x3 convolution), with torchvision's parameter names.
package resnet
