package balancer

// The numbers of policy hybrid. All were tuned by simulation; none depends on a machine. Times are relative to a step,
// and logs are natural, unless a comment says otherwise.

// Doubt: differences up to these are noise.
const (
	likelySigmas = 3.0    // standard deviations up to which one window counts, and beyond which a curve is known to fall
	sureSigmas   = 4.5    // standard deviations beyond which the speed of a rank has changed. Fewer would often be chance, among many ranks
	leastShift   = 0.03   // log: smaller changes of speed are left to the filter
	leastGain    = 0.0015 // of a step: smallest gain of a change of shares
	gainSigmas   = 0.6    // standard deviations of the slowest rank's curve that a change must gain. More follows noise less, and a rank later
	caution      = 0.27   // times sqrt(2 ln ranks): standard deviations of the margin on which shares are chosen. More of it leaves too much untried
	settledAfter = 30     // decisions after which the margin applies: earlier, shares are on their way
)

// Noise of a rank, and how its level moves.
const (
	priorNoise  = 0.03    // standard deviation of the log of a step's time before any measurement
	commonPrior = 0.02    // standard deviation of the change that all ranks have in common from window to window, log, before any measurement
	priorWeight = 4.0     // observations that these count as
	memory      = 12.0    // windows over which both are averaged. More is surer, and follows a change of noise later
	windowNoise = 0.002   // standard deviation of the log of a window's mean that more steps do not reduce
	jitterRate  = 0.05    // of a window's excess over the noise of its steps that is taken for jitter
	leastWander = 0.00002 // standard deviation by which the level of a steady rank moves, log a window
	mostWander  = 0.01    // likewise, of the least steady rank
	reshape     = 0.25    // part of wander by which each share moves alone while it is not measured
	wanderRate  = 0.1     // log: how much a window changes wander for each unit that its innovation agrees with earlier ones,
	wanderBias  = 0.3     // less this: agreement by chance must not add up
	driftForget = 0.8     // part of the sum of innovations that remains after a window
	levelRate   = 0.3     // fraction, per window, of the change in common that the curves of the ranks follow
	commonSure  = 2.0     // times the variance by chance: least movement within a window that all ranks have in common
)

// Curves before and between the measured shares.
const (
	priorFixed    = 0.15   // part of a rank's time that does not depend on its share, where one share is known,
	lineSigma     = 0.3    // and the standard deviation of this part, and of the slope
	shapeError    = 0.03   // standard deviation of the log of a time between runs, and between devices of one type
	unknownHeight = 1.0    // variance of the log of the height of a curve from an earlier run
	unknownShape  = 0.75   // of the distance to the nearest measured share, log: surprise of a new share that says nothing of other ranks
	newPart       = 0.0025 // of the square of a surprise at a new share: variance of the level of the older shares
	alikeRatio    = 1.05   // of samples, up to which two shares in tiles that are as full take about as long
	furthest      = 4.0    // times the largest measured share, or down from the smallest: how far one decision goes
	believers     = 8.0    // ranks that prior beliefs in bends and tiles count as. Fewer find a tile of all ranks sooner, more find ranks with tiles of their own
)

// Tiles ([tile]): beliefs before any measurement.
const (
	tilePrior     = 0.026 // probability of each aligned tile
	roundsPrior   = 0.003 // probability of each tile that rounds up
	alignedWeight = -0.35 // expected weight of an aligned tile,
	alignedSigma  = 0.2   // and its standard deviation: steps of 10 to 60 % were measured
	roundsWeight  = 0.7   // expected weight of a tile that rounds up,
	roundsSigma   = 0.3   // and its standard deviation
	leastChance   = 0.05  // of a tile that predictions use: a rare one would bend every smooth curve
	leastAdopt    = 0.004 // probability of a tile from which a probe assumes it. A larger one never finds tiles that other ranks lack
)

// Probes and changes.
const (
	boundarySteps = 2.0   // steps between two windows: the step that is left out, and half of each neighbour
	firstSteps    = 3     // steps of the first window: equal shares of unequal ranks cost most
	firstPatience = 2     // windows without a change before the first probe. Less starts before the curves are known
	patienceGrows = 1.3   // times with each probe that only hopes: less probes more often where nothing is to be found
	probeCost     = 0.05  // of a step: cost from which a probe ends early
	endsAfter     = 2     // steps after which a probe may end early
	mostProbe     = 0.25  // of a step: most expected cost of a probe that only hopes
	probeSigmas   = 1.5   // standard deviations by which a rank is hoped to be faster
	probeGain     = 0.005 // of a step: least gain that is hoped for
	probeLesson   = 3.0   // value of a probe, in gains of its shares: it teaches curves beyond these shares. Less finds fewer tiles
	fallChance    = 0.1   // that a curve falls within the next octave beyond the measured shares; each probe halves it
	valleyChance  = 0.5   // that the lowest point of a curve that is known to fall lies beyond the fastest measured share
	fallGain      = 0.3   // of a step: gain of such a fall. A larger one finds more falls, and costs more where there are none
	mostFall      = 2.5   // times the largest measured share: how far a probe of a fall goes
	payBack       = 10    // intervals in which a change must earn its price
	mostCost      = 0.1   // of payBack intervals: largest price of a change. A clock that jumped would stop the balancing
	recallFirst   = 20    // decisions until an excluded rank is tried again; doubles each time
)

// Limits that keep a decision fast. Larger ones change shares little.
const (
	mostShares = 24   // measured shares that a rank remembers
	priorCells = 10   // points of a curve from an earlier run
	lenders    = 3    // ranks of a type that lend measured shares
	mostLent   = 6    // measured shares of lenders that the curve of a rank uses
	mostParts  = 4    // hypotheses of tiles that a prediction uses
	everyShare = 4096 // samples up to which a curve with tiles has every share
	gridRatio  = 1.25 // of neighbouring points of a curve in the reach of a decision,
	farRatio   = 2.0  // and beyond
	manyRanks  = 64   // with more ranks, each curve is fitted again only once in drawnEvery windows
	drawnEvery = 4    // windows
	leastPlain = 0.05 // least part of a time that a tile leaves
)
