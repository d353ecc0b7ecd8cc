package balancer

// The numbers of policy hybrid. All were tuned by simulation; none depends on a machine. Times are relative to a step,
// and logs are natural, unless a comment says otherwise.

// Thresholds: smaller differences count as noise.
const (
	// Standard deviations: larger differences of one window are clipped, and beyond them a curve is known to fall.
	likelySigmas = 2.5
	// Standard deviations beyond which the speed of a rank has changed. With fewer, many ranks would give false alarms.
	sureSigmas = 4.5
	leastShift = 0.03 // log: the filter follows smaller changes of speed
	leastJump  = 0.1  // log: smaller jumps of a level begin no disturbance
	// Log of the ratio of likelihoods from which a rank is as before a disturbance. Smaller: more chance agreements.
	// Larger: more disturbances whose end remains unnoticed.
	sureRatio = 2.0
	leastGain = 0.0015 // of a step: smallest gain of a change of shares
	// Standard deviations of the slowest rank's curve that a change must gain. Larger: follows noise less, and a rank
	// later.
	gainSigmas = 0.6
	// Times sqrt(2 ln ranks): standard deviations of the margin for the choice of shares. Larger: tries too few shares.
	caution      = 0.27
	settledAfter = 30 // decisions after which the margin applies; before, shares still change much
)

// Fraction of a rank's fastest time per sample that curves may reach. The rest is a margin for the noise of the fastest
// step, and for tiles that other shares fill better. Smaller: shares follow levels that the rank never had. Larger: a rank
// that becomes faster than ever gets its samples later.
const reachable = 0.7

// Noise of a rank, and how its level moves.
const (
	// Standard deviation of the log of a step's time, and of the change that all ranks have in common from window to
	// window, before any measurement.
	priorNoise  = 0.03
	priorWeight = 4.0 // weight of these two, in observations
	// Windows over which both are averaged, and after which a disturbance counts as the usual state. Larger: more exact, but
	// follows a change of noise later.
	memory      = 12
	windowNoise = 0.002   // standard deviation of the log of a window's mean that more steps do not reduce
	jitterRate  = 0.05    // fraction of a window's excess over the noise of its steps that goes into jitter
	leastWander = 0.00002 // standard deviation by which the level of a steady rank moves, log a window
	reshape     = 0.25    // fraction of wander by which each unmeasured share moves on its own
	// Log: change of wander per window, for each unit of agreement of its innovation with earlier ones.
	wanderRate = 0.1
	wanderBias = 0.3 // subtracted from the agreement, so that chance does not accumulate
	// Fraction of the difference by which an average follows each observation. Larger: follows faster, and noise more.
	follow     = 0.3
	commonSure = 2.0 // times the variance by chance: least common movement of all ranks within a window
)

// Curves before and between the measured shares.
const (
	priorFixed = 0.15 // fraction of a rank's time that does not depend on its share, if only one share is known,
	lineSigma  = 0.3  // and the standard deviation of this part, and of the slope
	shapeError = 0.03 // standard deviation of the log of a time between runs, and between devices of one type
	// Log: least standard deviation of the levels of devices of one type. Larger: noise makes one of many equal ranks look
	// slow. Smaller: differences below the noise are found later.
	levelSpread   = 0.01
	unknownHeight = 1.0 // variance of the log of the height of a curve from an earlier run
	// Times the distance to the nearest measured share, log: surprise of a new share that is no evidence about other
	// ranks.
	unknownShape = 0.75
	newPart      = 0.0025 // times the square of a surprise at a new share: variance of the level of the older shares
	furthest     = 4.0    // times the largest measured share: reach of one decision
	// The smallest measured share divided by this is the least share of one decision. Smaller: slow ranks keep large
	// shares for longer at the start. Larger: finds fewer falls.
	furthestDown = 12.0
	// Weight of the prior beliefs in bends and tiles, in ranks. Smaller: finds a tile of all ranks sooner. Larger:
	// finds tiles of single ranks.
	believers = 8.0
)

// Tiles ([tile]): beliefs before any measurement.
const (
	tilePrior     = 0.026 // probability of each aligned tile
	roundsPrior   = 0.003 // probability of each tile that rounds up
	alignedWeight = -0.35 // expected weight of an aligned tile
	tileSigma     = 0.2   // standard deviation of a weight: steps of 10 to 60 % were measured
	roundsWeight  = 0.7   // expected weight of a tile that rounds up
	// Least probability of a tile that predictions use. Smaller: improbable tiles would bend smooth curves.
	leastChance = 0.05
	// Least probability of a tile that a probe assumes. Larger: never finds tiles that other ranks do not have.
	leastAdopt = 0.004
)

// Probes and changes.
const (
	boundarySteps = 2.0 // steps between two windows: the omitted step, and half of each neighbour
	// Standard deviation of the log of the first step's time because of the start of the program. Smaller: trusts a slow
	// start. Larger: the first decision is worth less.
	startError = 0.1
	// Log: the first step is dropped if a rank is faster by more in the second window. Smaller: drops what the curve would
	// explain. Larger: the time of the first step, however uncertain, bends the curve.
	startDropped = 1.0
	// Factor on the number of windows without a change before the next speculative probe, after each such probe. Smaller:
	// probes more often without a result.
	patienceGrows = 1.3
	probeCost     = 0.05 // of a step: cost from which a probe ends early
	fewSteps      = 2    // steps that show the noise of a step: of the first window, and of a probe that ends early
	mostProbe     = 0.25 // of a step: largest expected cost of a speculative probe
	probeSigmas   = 1.5  // standard deviations by which a speculative probe assumes ranks to be faster
	fallChance    = 0.1  // probability of a fall within the octave beyond the fastest shares, if the curve has not fallen so far
	valleyChance  = 0.5  // likewise, of a further fall, if the curve falls up to its fastest share
	fallFades     = 0.17 // log: each probe of a fall reduces both by this factor. Smaller: probes longer without a result
	fallGain      = 0.3  // of a step: gain of such a fall. Larger: finds more falls, and costs more if there are none
	mostOctaves   = 1.3  // octaves: largest distance from measured shares that counts. Larger: probes larger shares
	nearlyFastest = 0.15 // of the shortest time: a probe of a fall starts from the largest share within it
	payBack       = 10   // intervals in which a change must repay its cost
	// Of payBack intervals: largest cost of a change. Without it, a jump of the clock would stop the balancing.
	mostCost    = 0.1
	recallFirst = 20 // decisions until an excluded rank gets samples again; doubles each time
)

// Limits that keep a decision fast. Larger values change the shares little.
const (
	mostShares    = 24    // measured shares that a rank remembers
	lenders       = 3     // ranks of a type that lend measured shares
	mostLent      = 6     // measured shares of lenders that the curve of a rank uses
	mostParts     = 4     // hypotheses of tiles that a prediction uses
	everyShare    = 4096  // samples up to which a curve with tiles has every share
	gridRatio     = 1.25  // ratio of shares near each other, and of neighbouring points of a curve in the reach of a decision,
	farRatio      = 2.0   // and beyond
	manyRanks     = 64    // with more ranks, each curve is fitted only once in drawnEvery windows
	drawnEvery    = 8     // windows
	leastVariance = 1e-12 // of a log or a relative time: avoids a division by 0
	leastPlain    = 0.05  // least fraction of a time that remains without its tile
)
