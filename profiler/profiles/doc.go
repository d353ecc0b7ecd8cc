// Package profiles defines the files of hetero-train profile: gpu_profiles.json with one entry per rank, and
// system_profile.json with one entry per machine and the links between ranks.
//
// # The compute score
//
// Rank r's score is
//
//	(TFLOP/s of the training's element type)^a * (memory bandwidth / 10 GB/s)^b,  a + b = 1
//
// where b is the fraction of a training step that is bound by memory, see [Score]. The size of the memory is not part
// of the score: it limits a share, but never speeds it up. Scores are absolute, so that files of different days can be
// compared, and relative to the slowest rank, which has 1.0.
//
// Ranks of the same device type and element type have one score, from the medians of their figures, because differences
// between them are noise. [Predict] measures how well scores predict step times.
//
// # Reading
//
//	p, err := profiles.Load(path)                    // *FormatError for a corrupt file or one of a newer program
//	ranks, mismatch := p.Match(fingerprints)         // entries for the ranks of this run
//	if mismatch != "" { log.Warn(...) }              // measured on other hardware: ranks is nil
//
// fingerprints are those of hardware.Identify, one per rank.
package profiles
