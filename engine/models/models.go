package models

import (
	"github.com/hetero-train/hetero-train/engine/graph"
	"github.com/hetero-train/hetero-train/engine/nn"
)

// Classifier builds the forward pass of an image classifier, from x (N, 3, H, W) to logits (N, classes).
type Classifier func(net *nn.Net, x *graph.Value, classes int) *graph.Value
