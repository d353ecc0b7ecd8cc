// Package models is what the trainer knows of a model: a name and a function from images to logits.
//
// Adding a model is one folder with one file, the model on one page, and its name and keys in the list of models
// in cmd/hetero-train/internal/parts/catalog.go. Parameter names are those of the ecosystem (torchvision), so that weights go in and out.
package models
