// Package language implements the tasks of language models: to predict the next tokens, or masked tokens.
//
// The metrics are the perplexity, which is exp(loss), and the accuracy. The accuracy is the fraction of the targets
// whose token has the highest score. Only targets that count enter a metric. For masked tokens these are the masked
// positions.
package language
