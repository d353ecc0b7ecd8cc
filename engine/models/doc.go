// Package models defines the kinds of models that the trainer accepts. A model is a function that builds a graph. The
// graph maps the inputs of a batch to the operands of the loss.
//
//	Classifier          images to logits
//	Language            tokens to the operands of a loss over the vocabulary: GPT-2, masked BERT
//	SequenceClassifier  tokens to logits: BERT for fine-tuning
//
// Each model is a folder. One file in the folder contains the whole network. A line in
// cmd/hetero-train/internal/parts/catalog.go declares the name and the keys of the model. Parameter names are those
// of torchvision for image models, and those of Hugging Face's library transformers for text models. Weights can
// therefore be exchanged with these libraries.
package models
