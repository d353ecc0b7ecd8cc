// Package models defines the kinds of models that the trainer accepts. A model is a function from the inputs to the
// operands of the loss.
//
//	Classifier          images to logits
//	Language            tokens to the rows and the table of a head over the vocabulary: GPT-2, masked BERT
//	SequenceClassifier  tokens to logits: BERT for fine-tuning
//
// A model is one folder with one file that holds the network on one page. A line in
// cmd/hetero-train/internal/parts/catalog.go declares its name and its keys. Parameter names are those of torchvision
// for images, and those of Hugging Face's library transformers for text, so that weights can be exchanged.
package models
