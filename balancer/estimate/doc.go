// Package estimate learns the step times of ranks from measurements, with a probabilistic model of each rank. From the
// model it computes the step-time curves on which policies choose shares:
//
//	model := estimate.New(options)
//	for { // after each window of steps, in which shares are constant
//		model.Learn(&estimate.Window{Shares: shares, Seconds: seconds})
//		fitted, missing := model.Fit(shares, true)
//		curves := model.Mean()
//	}
//
// # Terms
//
//   - The level of a rank is a factor on the times of all its shares. A Kalman filter estimates the level
//     (posterior.go). The states of the filter are the times at measured shares. The process noise is learnt from the
//     innovations.
//   - The shape is the curve through the measured shares: Gaussian-process regression with a linear and a Brownian
//     kernel (shape.go; Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, ch. 2).
//   - A tile is the number of samples that kernels process as one block (tiles.go). Each kind of tile is a hypothesis
//     with a prior probability. A prediction is a mean over hypotheses, weighted by their evidence (Bayesian model
//     averaging).
//   - A surprise is the difference of the first measurement at a share from the curve. It comes from the shape, the
//     level, or a disturbance of this window. The model weights the three by their probabilities (causes.go). A
//     second measurement at an earlier share distinguishes shape and level ([Model.AskAgain]).
//   - A disturbance makes ranks slower for some windows. A rank returns to its earlier state once that state predicts
//     its times again (disturbance.go).
//   - A common-mode change is a change of the times of all ranks by the same factor. It does not count as a change of a
//     rank (common.go).
//
// Ranks of one device type use each other's measured shares ("borrow" and "lend"). Their curves move towards the mean
// curve of the type by the part of the differences that noise explains (types.go). Curvature and tiles are learnt from
// all ranks (empirical Bayes). With many ranks, a rank counts as different from its type, or as changed, only if its
// times exceed the most extreme noise of this number of equal ranks (peers.go). Outliers within a window are clipped
// (reading.go; Huber, Robust Estimation of a Location Parameter, 1964).
//
// The constants were tuned by simulation; none depends on a machine. Each constant is next to the code that uses it.
// Times are per step, and logarithms are natural, unless a comment says otherwise.
package estimate
