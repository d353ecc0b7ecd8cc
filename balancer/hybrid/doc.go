// Package hybrid is the policy that takes the shares with the shortest step on step-time curves that are fitted during
// training. It starts with shares by scores, or on the curves of an earlier run. After each window of steps:
//
//  1. The model of the ranks learns the times, and fits the curves ([estimate.Model]).
//  2. The chooser finds the best shares within the reach of one decision (chooser.go, best.go).
//  3. The accounts explain how good the shares in use are (accounts.go, oracle.go).
//  4. The shares change if the gain exceeds its uncertainty (doubt) and the cost of a change (gain.go, price.go).
//  5. Otherwise a probe tries shares that may be better, if its expected gain exceeds its expected cost (probe.go).
//
// The time at one share says little about the times at other shares, so a decision changes a share by a limited factor.
// If steps with new shares lose more time than a probe may cost, their window ends early. The next decision then uses
// their times.
//
// A probe tests a hypothesis: a rank gets faster with more samples (probe_falls.go), shares that fill tiles are faster
// (probe_tiles.go), or a rank is faster than expected where its curve is uncertain (probe.go).
//
// hybrid can also minimize energy or cost, and exclude ranks without which every step is shorter. It readmits excluded
// ranks from time to time, to measure them.
//
// The files in testdata show decisions in typical situations, as text.
//
// Each file uses only files below it in this list:
//
//	explained.go    explains the decisions of another policy
//	hybrid.go       the policy
//	readmit.go      excluded ranks get samples again
//	probe.go        selection of a probe
//	probe_falls.go  probes of larger shares
//	probe_tiles.go  probes of shares that fill tiles
//	accounts.go     explanation of a decision
//	disagree.go     reasons why curves and measured times disagree
//	oracle.go       time of a step with the best shares, over scenarios
//	moves.go        shortest step of a scenario, with whole units
//	sampler.go      times of all ranks in all scenarios
//	draws.go        random numbers
//	prospect.go     two shares of a rank, with the errors of their times
//	best.go         best shares for the objective, and exclusion of ranks
//	gain.go         gain of a change of shares
//	price.go        price of a change of shares
//	prober.go       state and cost of probes
//	chooser.go      reach of one decision
//	pace.go         length of windows
package hybrid
