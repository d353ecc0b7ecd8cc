// Package language is the task of training language models to predict tokens.
//
// There are two metrics. The perplexity is exp(loss). The accuracy is the fraction of targets whose token has the
// highest score.
package language
