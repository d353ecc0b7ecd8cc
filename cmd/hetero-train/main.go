// Hetero-train trains deep-learning models by data parallelism on workers of unequal speed.
//
//	hetero-train -c configs/resnet50.toml
//
// Package program is the command line. A program with its own models, data sets or policies calls it in the same way.
package main

import "github.com/hetero-train/hetero-train/cmd/hetero-train/program"

func main() { program.Main() }
