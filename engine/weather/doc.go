// Package weather defines scenarios. A scenario describes how the workers of a cluster change during training: slow
// steps, noisy neighbours and slow links. It is a short text, and all replays are identical. Two policies can
// therefore be compared under the same conditions.
//
//	w, err := weather.Parse("half_speed.txt", text)
//	c := w.At(step, rank)     // before each optimizer step, on each rank
//	c.Speed                   // 0.5: half of this rank's usual speed
//
// This package only computes conditions. It has no clock and no side effects. Package lab applies the conditions to a
// process.
//
// # The text
//
// Each line contains one statement. A comment starts with #. Spaces separate words.
//
//	weather v1                                    # always the first statement
//	seed 7                                        # seed of the jitter; default 0
//	from 80 to 160 rank 2 speed 0.5               # steps 80 to 160, including both
//	from 200 rank 0 speed 0.8 jitter 0.05         # from step 200 to the end, another factor in each step
//	from 100 to 150 rank 1 neighbour 1            # one busy thread takes CPU time from rank 1
//	from 50 to 90 rank 3 link 10 mbit             # rank 3's network link carries 10 Mbit/s
//	every 50 for 3 rank 0 speed 0.7               # steps 50 to 52, 100 to 102, …
//	from 10 to 400 every 50 for 3 rank 0,2 speed 0.7  # steps 10 to 12, 60 to 62, … up to 400, on two ranks
//	all speed 0.9                                 # every rank, the whole run
//
// As a grammar:
//
//	line   = [ "from" step [ "to" step ] ] [ "every" steps "for" steps ] who what
//	who    = "rank" rank { "," rank } | "all"
//	what   = "speed" factor [ "jitter" sigma ] | "neighbour" threads | "link" rate ( "kbit" | "mbit" | "gbit" )
//
// Steps are optimizer steps. They count from 1 over the whole run, so a resumed run continues the scenario. Without
// "from", a line applies from step 1 on, or from step N on if the line contains "every N".
//
// A speed factor is relative to the usual speed of the rank. It is above 0 and at most 1. With jitter, a new factor
// is drawn in each step from a lognormal distribution. Its median is the given factor, and sigma is the standard
// deviation of the logarithm (0.05 means about 5 %). The factor is a function of seed, line, rank and step only.
//
// Lines that apply at the same time are combined: speeds are multiplied, neighbours are added, and the slowest link
// applies. The product of the speeds is limited to [MinSpeed] … 1.
//
// # Errors
//
// Parse reports up to 20 faulty lines in one error. For each line, the error contains the file, the line number, the
// fault, the text found and the text expected.
package weather
