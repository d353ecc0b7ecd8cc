// Package language implements the tasks of language models: to predict the next tokens, or masked tokens, or
// to classify texts.
//
// The metrics of predictions are the perplexity, which is exp(loss), and the accuracy. The accuracy is the fraction of
// the targets whose token has the highest score. Only targets that count enter a metric. For masked tokens these are
// the masked positions. With next-sentence prediction, a third metric is the fraction of the samples whose pair of
// texts is classified correctly. The perplexity then leaves out the loss of the pairs. The metrics of classification
// are the accuracy and F1 (task.Confusion).
package language
