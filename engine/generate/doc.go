// Package generate continues a text with a language model.
//
//	m, err := generate.Open(dev, generate.Options{Model: build, Vocabulary: 50257, Positions: 1024, Compute: tensor.F32})
//	err = m.Load(file, file.ReadInto)       // weights of a checkpoint
//	logits, err := m.Next(tokens)           // of the token that follows
//	token := sampler.Choose(logits)
//
// Next keeps the keys and values of the tokens that it has read (key-value cache). A call whose text is the last one and
// one more token computes only this token; any other call reads the text from its start. A plan for a text has a power
// of two of positions; the positions after the last token are padding, which a causal model does not see.
//
// Next reads the last Positions tokens of a longer text. Each call then shifts all positions, so it cannot use the cache.
//
// # Errors
//
//	*checkpoint.MismatchError  Load: the weights belong to another model (exit code 2)
//	device errors              the device lacks memory or an op
package generate
