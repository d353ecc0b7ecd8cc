// Package language implements the tasks of language models: prediction of the next tokens or of masked tokens, and
// classification of texts.
//
// A target is a position whose label is at least 0; among masked tokens, these are the masked positions. Other
// positions have no effect on the metrics. The metrics of predictions are the perplexity, which is exp(loss), and the
// accuracy. The accuracy is the fraction of the targets whose token has the highest score. With next-sentence
// prediction, a third metric is the fraction of the samples whose pair of texts is classified correctly. The perplexity
// then does not include the loss of the pairs. The metrics of classification are the accuracy and F1 (task.Confusion).
package language
