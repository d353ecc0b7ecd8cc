// Package hyper represents facts as vectors of many dimensions (hyperdimensional computing, vector symbolic
// architecture), and scores GPUs for a job by the similarity to earlier placements.
//
// # Vectors
//
// A [Vector] has d components, each +1 or -1. It is stored as bits: bit 0 is +1, bit 1 is -1. A [Space] fixes d,
// usually [Dimension], and the seed of all random vectors. Two random vectors are almost orthogonal: their similarity
// has mean 0 and standard deviation 1/sqrt(d).
//
//	[Space.Bind]        product by component (XOR of the bits). Bind(a, b) is similar to neither; Bind(Bind(a, b), b) = a
//	[Bundle]            majority by component. A bundle is similar to each of its members
//	[Space.Similarity]  1 - 2 * (bits that differ) / d: 1 for equal vectors, 0 for unrelated ones, -1 for opposite ones
//
// A bundle of an even number of vectors can have ties. Component i of a tie is component i of a fixed random vector of
// the space, so equal operations give equal vectors.
//
// # Numbers
//
// [Levels] represent numbers between 0 and 1 (thermometer code). The similarity of levels i and j of n is
// 1 - |i-j|/(n-1), up to rounding.
//
// # Records and queries
//
// A record is a bundle of pairs Bind(role, value). Binding a record with a role gives a noisy copy of the value.
// [Memory.Nearest] finds the value in an item memory:
//
//	record := majority of model * "V100", utilization * level(0.3), priority * level(0.9)
//	query  := Bind(record, model)          // "V100" and noise
//	match  := models.Nearest(query, ...)   // "V100"
//
// An unknown fact has no pair in the record.
//
// # The affinity of a job for a GPU
//
// An [Affinity] remembers placements: a job, a GPU, and how well the job ran on the GPU. A placement is Bind(J, G). J
// is the record of the job (kind, class, priority, requested resources), in which the kind has three times the weight
// of another fact. G is Bind(model, R), where R is the record of the GPU's numbers (memory, bandwidth, compute,
// utilization). The efficiency of a placement is a quotient. The dividend is the work that the job did there. The
// divisor is the work that the job would have done in the same time alone on its fastest type of GPU. The memory M is
// the bundle of the last Options.Window placements. A placement with an efficiency below Options.Well has the opposite
// sign in the bundle.
//
//	score(job, GPU) = similarity(Bind(J, G), M)
//
// Because of the binding, the similarity of two placements is about the similarity of their jobs times the similarity
// of their GPUs. The score is therefore the estimate of a kernel method. It is positive if similar jobs ran well on
// similar GPUs, negative if they ran poorly, and 0 without placements. A model of GPU without placements has scores of
// about 0, with a standard deviation of 1/sqrt(d), because the affinity does not use placements on other models.
//
// The scores are part of the input of policy dqn. [Affinity.Watch] learns from the states that a policy sees, so no
// other part of the simulator depends on this package.
//
// # Cost and memory
//
// Operations on vectors do not allocate memory. With 10,000 dimensions, binding two vectors takes 109 ns, a similarity
// 200 ns, and unbinding a role and searching 64 items 16 us. Learning a placement takes 6.3 us, and computing the 277
// features of a state with 16 GPUs and 8 jobs takes 3.6 us (go test -bench . in hyper and features; AMD EPYC, Zen 5,
// 2 cores, other programs running, 2026-11-23).
//
// A query of a bundle is correct if a member is more similar to the bundle than each of 100 unrelated vectors. The
// fractions of correct queries agree with theory (TestCapacityTable; 2,000 queries, standard error at most 0.011):
//
//	dimension  members  theory  measured
//	1,000      51       0.8328  0.8305
//	2,000      101      0.8342  0.8195
//	10,000     201      0.9976  0.9965
//	10,000     401      0.9125  0.9060
//
// With 10,000 dimensions and the default window of 256 placements, almost all queries are correct.
//
// After an [Affinity] had observed 300 jobs of the default cluster, it scored 200 jobs of another seed. A score should
// be positive exactly if the job reaches at least 75 % of its highest speed on this type. 95.3 % of the signs are
// correct (TestScoresOfUnseenJobs; 20 pairs of seeds).
//
// # Sources
//
//   - Kanerva, Hyperdimensional Computing: An Introduction to Computing in Distributed Representation with
//     High-Dimensional Random Vectors, Cognitive Computation 1, 2009: bind, bundle, item memory.
//   - Gayler, Multiplicative Binding, Representation Operators and Analogy, 1998: binding of bipolar vectors.
//   - Kleyko et al., A Survey on Hyperdimensional Computing aka Vector Symbolic Architectures, ACM Computing Surveys
//     55, 2022: level encoding, capacity.
package hyper
