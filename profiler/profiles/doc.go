// Package profiles defines the two files that "hetero-train profile" writes. gpu_profiles.json contains one entry per
// rank. system_profile.json contains one entry per machine, and the links between ranks.
//
// # The compute score
//
// The compute score of a rank is
//
//	(TFLOP/s of the training's element type)^a * (memory bandwidth / 10 GB/s)^b,  a + b = 1
//
// b is the fraction of a training step that is bound by memory bandwidth (see [Score]). The size of the memory is not
// part of the score: it limits the share of a rank, but does not make the rank faster. The file contains absolute
// scores, so that files from different days can be compared. It also contains relative scores: the slowest rank has the
// relative score 1.0.
//
// All ranks with the same device type and element type get the same score, because differences between such ranks are
// noise. This score is computed from the medians of their measurements. [Predict] measures how well scores predict step
// times.
//
// # Reading
//
//	p, err := profiles.Load(path)                    // *FormatError: the file is corrupt, or a newer program wrote it
//	ranks, mismatch := p.Match(fingerprints)         // entries for the ranks of this run
//	if mismatch != "" { log.Warn(...) }              // the profile was measured on other hardware, so ranks is nil
//
// fingerprints contains one fingerprint per rank, from hardware.Identify.
package profiles
