// Package weather describes how the workers of a cluster change while they train: a small text that is replayed, the same each
// time, so that two policies meet the same slow steps, busy neighbours and thin links.
//
//	w, err := weather.Parse("half_speed.txt", text)
//	c := w.At(step, rank)     // before each optimizer step, on each rank
//	c.Speed                   // 0.5: half as fast as this rank usually is
//
// The package only says what the conditions are. It has no clock and touches nothing: package lab brings a process into them.
//
// # The text
//
// One statement a line; what follows a # is a comment. Words are separated by blanks.
//
//	weather v1                                    # always the first statement
//	seed 7                                        # of jitter; 0 where it is left out
//	from 80 to 160 rank 2 speed 0.5               # steps 80 to 160, both included
//	from 200 rank 0 speed 0.8 jitter 0.05         # from step 200 to the end, a factor of its own in each step
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
// Steps are optimizer steps, counted from 1 over the whole run, so a run that was stopped and goes on meets what lies ahead of
// it. Without "from" a line holds from the first step on, one with "every N" from step N on. A speed is relative to what the
// rank usually is, above 0 and at most 1. With jitter it is the median: the step's factor is lognormal, sigma the standard
// deviation of its logarithm (0.05: about 5 %), and a function of seed, line, rank and step alone.
//
// Lines that hold at the same time add up: speeds multiply, neighbours are counted together, of links the thinnest counts. The
// product of speeds stays between [MinSpeed] and 1.
//
// # Errors
//
// Parse names file, line, what is wrong, what stands there and what should, for up to 20 lines at once.
package weather
