// Package generate generates text with a language model, token by token.
//
//	m, err := generate.Open(dev, generate.Options{Model: build, Vocabulary: 50257, Positions: 1024, Compute: tensor.F32})
//	err = m.Load(file, file.ReadInto)       // loads the weights of a checkpoint
//	logits, err := m.Next(tokens)           // logits of the token that follows
//	token := sampler.Choose(logits)
//
// Next stores the keys and values of all tokens that it has read (key-value cache). If a text is the previous text
// plus one token, Next computes only this token. Otherwise it reads the text from its start. The number of positions
// of a plan is a power of two. The positions after the last token are padding, which does not influence the result of
// a causal model.
//
// If a text is longer than Positions, Next reads only its last Positions tokens. Each further token then shifts all
// positions, so the cache cannot be used.
//
// Set Options.Own for a user-defined model. Next then checks that the model is causal. Next uses the cache if the model
// reads models.Tokens.Positions and has an nn.Attention. The logits must be the same with the cache as in a pass over
// the whole text. Otherwise, and on a device without device.AttentionStep, Next reads the whole text for each token.
//
// # Errors
//
//	ErrNotCausal               Next: an own model reads tokens after the one that it predicts from (exit code 2)
//	*checkpoint.MismatchError  Load: the weights belong to another model (exit code 2)
//	device errors              the device has too little memory, or lacks an op
package generate
