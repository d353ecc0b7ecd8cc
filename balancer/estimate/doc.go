// Package estimate learns the step times of ranks from measurements. It keeps one probabilistic model of the time of
// each rank, and gives the curves on which shares are chosen:
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
//   - The level of a rank changes the times of all shares by one factor. A Kalman filter estimates it (posterior.go);
//     its states are the times at measured shares, and the process noise is learnt from the innovations.
//   - The shape is the curve through the measured shares: Gaussian-process regression with a linear and a Brownian
//     kernel (shape.go; Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, ch. 2).
//   - A tile is a number of samples in which kernels work (tiles.go). Each kind of tile is a hypothesis with a prior
//     probability. A prediction is a mean over hypotheses, weighted by their evidence (Bayesian model averaging).
//   - A surprise is the difference of the first measurement at a share from the curve. It comes from the shape or from
//     the level, and a second measurement at an earlier share distinguishes the two ([Model.AskAgain]).
//   - A disturbance makes ranks slower for some windows. A rank returns to its earlier state once that state predicts
//     its times again (disturbance.go).
//   - A common-mode change is one that all ranks have; it does not count as a change of a rank (common.go).
//
// Ranks of one device type borrow measured shares from each other, and their curves move towards their mean by the part
// of their differences that noise explains (types.go). Curvature and tiles are learnt from all ranks (empirical Bayes).
// Outliers within a window are clipped (reading.go; Huber, Robust Estimation of a Location Parameter, 1964).
//
// The constants were tuned by simulation; none depends on a machine. Each is next to its mechanism. Times are relative
// to a step, and logs are natural, unless a comment says otherwise.
package estimate
