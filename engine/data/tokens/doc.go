// Package tokens stores and samples tokenised text.
//
// # Files
//
// A shard is a file of tokens. Open maps a shard into memory and checks its header against its size. Three formats are
// read, and Writer writes the first one:
//
//	FormatOwn      256 bytes of header (Header), then uint16 or uint32 tokens; little-endian
//	FormatLLMC     llm.c: 256 int32 of header, then uint16 (GPT-2) or uint32 (Llama 3) tokens
//	FormatNanoGPT  no header: uint16 tokens in a file whose name ends in .bin
//
// A document ends with the end-of-text token, which is part of it. OpenCorpus joins shards to one sequence of tokens;
// Find lists the shards of a folder.
//
// # Samples
//
// These types are data.Samples, for a data.Loader:
//
//	Windows         successive tokens for a language model, with an offset of its own in each epoch
//	Masked          whole sentences of one document for BERT: masked tokens and, optionally, the next sentence
//	Classification  texts, or pairs of texts, with a label
//	Markov          a computed source whose entropy is known, so that the loss has a known floor
//
// Each sample is a function of (seed, epoch, sample index) only, and reading it allocates nothing. Masked and
// Classification have samples of unequal lengths; Length returns the length of a sample without reading it.
//
// # Errors
//
// Faults of files are *data.Fault with the file and the position: a header that disagrees with the file, a truncated
// or empty file, a token beyond the vocabulary, shards of different tokenizers.
package tokens
