// Package weather defines scenarios. A scenario describes how the workers of a cluster change during training. It is a
// small text, and every replay is the same, so two policies can be compared under the same slow steps, noisy neighbours
// and slow links.
//
//	w, err := weather.Parse("half_speed.txt", text)
//	c := w.At(step, rank)     // before each optimizer step, on each rank
//	c.Speed                   // 0.5: half of this rank's usual speed
//
// The package only computes conditions. It has no clock and no side effects; package lab applies the conditions to a
// process.
//
// # The text
//
// Each line holds one statement. A comment starts with #. Blanks separate words.
//
//	weather v1                                    # always the first statement
//	seed 7                                        # seed of the jitter; default 0
//	from 80 to 160 rank 2 speed 0.5               # steps 80 to 160, both included
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
// Steps are optimizer steps, counted from 1 over the whole run, so a resumed run continues the scenario. Without
// "from", a line applies from the first step on, or from step N on if it has "every N".
//
// A speed factor is relative to the rank's usual speed, above 0 and at most 1. With jitter, each step draws its factor
// from a lognormal distribution. The given factor is the median, and sigma is the standard deviation of the logarithm
// (0.05: about 5 %). The drawn factor is a function of seed, line, rank and step alone.
//
// Lines that apply at the same time combine: speeds multiply, neighbours add up, and the slowest link applies. The
// product of speeds is limited to [MinSpeed] … 1.
//
// # Errors
//
// The error of Parse covers up to 20 faulty lines. For each line it names the file, the line, the fault, the found text
// and the expected text.
package weather
