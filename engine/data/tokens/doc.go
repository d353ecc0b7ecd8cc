// Package tokens stores and samples tokenised text.
//
// # Files
//
// A shard is a file of tokens. Open maps a shard into memory and checks its header against its size. The package reads
// three formats, and Writer writes the first one:
//
//	FormatOwn      256 bytes of header (Header), then uint16 or uint32 tokens; little-endian
//	FormatLLMC     llm.c: a header of 256 int32 values, then uint16 (GPT-2) or uint32 (Llama 3) tokens
//	FormatNanoGPT  no header: uint16 tokens in a file whose name ends in .bin
//
// Each document ends with an end-of-text token, which is part of the document. OpenCorpus concatenates shards to one
// sequence of tokens. Find lists the shards of a folder.
//
// # Samples
//
// The following types implement data.Samples, so a data.Loader can read them:
//
//	Windows         successive tokens for a language model; each epoch starts at a different offset
//	Masked          sentences of one document for BERT, with masked tokens and, optionally, next-sentence prediction
//	Classification  texts, or pairs of texts, with a label
//	Markov          tokens from a Markov chain of known entropy, which is a lower bound of the loss
//	MaskedMarkov    tokens from a Markov chain, with masked tokens as for BERT
//
// A sample depends only on the seed, the epoch and the sample index. Reading a sample does not allocate. The samples
// of Masked and Classification have unequal lengths. Their method Length returns the length of a sample without
// reading the sample.
//
// # Errors
//
// An error in a file is a *data.Fault with the file and the position. Examples are a header that disagrees with the
// file size, a truncated or empty file, a token outside the vocabulary, and shards from different tokenizers.
package tokens
