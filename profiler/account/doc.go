// Package account divides the time of training steps into useful work and lost time by cause.
//
// It is a pure function of measured times. All reports of the program use it, so that the console, the records, the
// summary, the dashboard, Prometheus and the verdict on what limits the speed state the same figures.
//
//	w := account.NewWindow(ranks)
//	w.Add(seconds, exposed, step) // once per step: no allocation
//	a := w.Account(split, memory) // means per step; the parts sum to a.Step
//	w.Reset()
//
// # Parts
//
// The busy time of a rank is its time for data, passes and update, without waits for other ranks. The parts of a step
// are:
//
//	noise          mean over steps of the longest busy time, minus the longest mean busy time of a rank. The times of ranks
//	               vary from step to step; no split of the batch removes this wait
//	communication  exposed communication: the wait of the rank that waits least
//	imbalance      the time that the best split of the batch would save: (1 - Split.Oracle) times the step time without
//	               noise
//	data           the time by which the step would be shorter if no rank waited for data
//	memory         the cost of full memory
//	granularity    the cost of whole samples, or of whole groups of samples
//	pauses         the time between two steps and between the parts of a step, in which the slowest rank computes nothing:
//	               reports, records, or a process that the system has stopped
//	useful         the rest: passes and update with the best split
//
// Each part is at least 0, and the parts sum to the measured time of a step. Evaluations and checkpoints are not part
// of a step.
//
// # Gain
//
// [Account.With] returns the time that a step would take with other shares. [Speedup] compares two step times. Reports
// use both for the gain over equal shares, and for the predicted and the measured effect of a change of shares.
//
// # The best split
//
// A [Split] comes from step-time curves ([github.com/hetero-train/hetero-train/balancer]). Without curves, such as
// before the first decision of the balancer, the account assumes that the passes of a rank take a time in proportion to
// its samples.
package account
