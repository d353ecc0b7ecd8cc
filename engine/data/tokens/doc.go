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
// A document ends with the end-of-text token, which belongs to the document. OpenCorpus joins shards into one sequence
// of tokens. Find lists the shards of a folder.
//
// # Samples
//
// These types implement data.Samples, for a data.Loader:
//
//	Windows         successive tokens for a language model; each epoch starts at a different offset
//	Masked          whole sentences of one document for BERT: masked tokens and, optionally, the next sentence
//	Classification  texts, or pairs of texts, with a label
//	Markov          tokens computed from a Markov chain; its entropy is known, and no loss can be lower
//
// Each sample is a function of (seed, epoch, sample index) only. Reading a sample allocates nothing. Masked and
// Classification have samples of unequal lengths; Length returns the length of a sample without reading it.
//
// # Errors
//
// Faults of files are of type *data.Fault, with the file and the position. Such faults are a header that disagrees with
// the file's size, a truncated or empty file, a token beyond the vocabulary, and shards of different tokenizers.
package tokens
