// Hetero-train trains deep-learning models by data parallelism on workers of unequal speed.
//
//	hetero-train -c configs/resnet50.toml
//
// Package program implements the command line. Other programs call program.Main in the same way, with models, data sets
// or policies of their own.
package main

import "github.com/hetero-train/hetero-train/cmd/hetero-train/program"

func main() { program.Main() }
