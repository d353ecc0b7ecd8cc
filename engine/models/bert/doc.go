// Package bert builds BERT (Devlin, Chang, Lee, Toutanova, "BERT: pre-training of deep bidirectional transformers for
// language understanding", 2018) in any size: as a masked language model, and as a classifier of texts.
//
// Parameter names are those of the classes BertForMaskedLM and BertForSequenceClassification of Hugging Face's library
// transformers, without cls.predictions.decoder, which is the table of the tokens.
//
// Initial weights are normal with deviation 0.02, biases are 0.
package bert
