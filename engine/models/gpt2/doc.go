// Package gpt2 builds GPT-2 (Radford, Wu, Child, Luan, Amodei, Sutskever, "Language models are unsupervised multitask
// learners", 2019) in any size.
//
// Parameter names are those of class GPT2LMHeadModel of Hugging Face's library transformers, without lm_head.weight,
// which is the table of the tokens. Weights of linear layers have the shape (outputs, inputs); transformers stores them
// transposed ("Conv1D").
//
// Initial values are GPT-2's: normal with deviation 0.02, for the last projection of each branch divided by the root of
// the number of branches; biases are 0.
package gpt2
