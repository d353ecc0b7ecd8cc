// Package language implements the task of language models: to predict tokens.
//
// The metrics are the perplexity, which is exp(loss), and the accuracy. The accuracy is the fraction of the targets
// whose token has the highest score.
package language
