// Package models defines a model for the trainer: a name and a function from images to logits.
//
// A model is one folder with one file that holds the network on one page. Its name and its keys are a line in
// cmd/hetero-train/internal/parts/catalog.go. Parameter names are those of torchvision, so that weights can be
// exchanged.
package models
