// Package language is the training of language models: the prediction of tokens.
//
// The metrics are the perplexity, which is exp(loss), and the accuracy, the fraction of targets whose token has the
// highest score.
package language
