// Package gpt2 builds GPT-2 (Radford, Wu, Child, Luan, Amodei, Sutskever, "Language models are unsupervised multitask
// learners", 2019) in any size.
//
// Parameter names are those of class GPT2LMHeadModel of Hugging Face's library transformers. There is no
// lm_head.weight, because it equals the token embedding. Weights of linear layers have the shape (outputs, inputs);
// transformers stores them transposed ("Conv1D").
//
// Initial values are those of GPT-2. Weights are normally distributed with standard deviation 0.02. In the last
// projection of each residual branch, the standard deviation is divided by the square root of the number of branches.
// Biases are 0.
package gpt2
