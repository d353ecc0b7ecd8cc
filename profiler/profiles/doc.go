// Package profiles is what hetero-train profile finds out, as it is kept in files: gpu_profiles.json, one entry a rank, and system_profile.json, one
// entry a machine and the links between ranks.
//
// # The compute score
//
// Rank r's score is
//
//	(TFLOP/s of the training's element type)^a * (memory bandwidth / 10 GB/s)^b,  a + b = 1
//
// with b the share of a training step that is bound by memory, see [Score]. The memory's size is no part of it: memory limits a share, it never
// speeds it up. Scores are absolute, so that files of different days can be compared, and relative to the slowest rank, which has 1.0.
//
// Ranks of the same device type and element type have one score, of the medians of their figures: what differs between them is chance. [Predict] says how
// well scores predict measured step times.
//
// # Reading
//
//	p, err := profiles.Load(path)                    // corrupt or of a newer program: an error that says so
//	ranks, mismatch := p.Match(fingerprints)         // those of the ranks that are here
//	if mismatch != "" { log.Warn(...) }              // measured on other hardware: ranks is nil
//
// A fingerprint is that of hardware.Identify, one a rank.
package profiles
