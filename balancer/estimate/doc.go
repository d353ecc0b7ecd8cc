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
// curve of the type by the part of the differences that noise explains (shrink.go). Curvature and tiles are learnt from
// all ranks (empirical Bayes). With many ranks, a rank counts as different from its type, or as changed, only if its
// times exceed the most extreme noise of this number of equal ranks (peers.go). Outliers within a window are clipped
// (reading.go; Huber, Robust Estimation of a Location Parameter, 1964).
//
// The constants were tuned by simulation; none depends on a machine. Each constant is next to the code that uses it;
// thresholds.go contains those that several files use. Times are per step, and logarithms are natural, unless a comment
// says otherwise.
//
// # Files
//
// Each file uses only files below it in this list:
//
//	profile.go      shares that a profile measures
//	learn.go        [Model.Learn]: the times of a window
//	fit.go          [Model.Fit]: the curves after a window
//	view.go         other methods of the model
//	bytes.go        memory of the model
//	borrow.go       ranks that use the curve of their type
//	pool.go         fit of the curve of a type with many ranks
//	shrink.go       move of curves towards the mean of their type
//	lend.go         measured shares of other ranks of a type
//	spread.go       classes of ranks, and the spread of their levels
//	disturbance.go  return to the state before a disturbance
//	model.go        the model before the first window
//	beliefs.go      tiles and bends, by all ranks
//	update.go       the filter learns from a window
//	causes.go       causes of a surprise
//	noise.go        noise, by all ranks
//	common.go       common-mode changes
//	reading.go      steps of a window
//	curves.go       fitted curves of all ranks
//	bound.go        times that a rank can reach
//	types.go        groups of ranks of one device type
//	levels.go       levels of the ranks of a type: their mean, spread and outliers
//	posterior.go    state of the filter of a rank
//	jumps.go        jumps of a level
//	peers.go        thresholds by the number of ranks
//	pool_curve.go   curve of a type with many ranks
//	drawn.go        points of a curve
//	regression.go   fit of a shape, and the evidence of tiles and bends
//	shape.go        predictions of a shape
//	grid.go         shares of a shape
//	tiles.go        tiles
//	bends.go        covariance functions
//	cells.go        measured shares
//	cholesky.go     linear equations
//	settle.go       curves with a single minimum
//	simplify.go     curves with fewer points
//	thresholds.go   noise and thresholds
package estimate
