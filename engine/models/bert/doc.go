// Package bert builds BERT (Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional transformers for
// language understanding", 2018) in any size. It offers BERT as a masked language model and as a classifier of texts.
//
// Parameter names are those of the classes BertForMaskedLM, BertForPreTraining (with next-sentence prediction) and
// BertForSequenceClassification of Hugging Face's library transformers. There is no cls.predictions.decoder, because it
// equals the token embedding.
//
// Initial weights are normally distributed with standard deviation 0.02. Initial biases are 0.
package bert
