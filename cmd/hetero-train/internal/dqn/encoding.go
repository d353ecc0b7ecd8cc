package dqn

import (
	"fmt"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/balancer/scheduler/features"
	"github.com/hetero-train/hetero-train/balancer/scheduler/hyper"
)

// Encoding defines how a state of a cluster is converted to an Observation, and an action to a list of GPUs.
//
// # Rows
//
// The GPUs of one type on one machine form a group. A group is a row of the image. The row contains the available GPUs
// of the group, in the order of the times at which they become free. The GPUs of a group are equal, so an action names
// a job and a group. With Share, a job can use a group in two ways: alone, or on the GPUs of a job that runs in the
// group.
//
// No value of an observation identifies a machine, a type or a kind. Speeds are relative to other types. The unit of
// time is the geometric mean of the running times of all jobs that have arrived. Each running time is that of the job
// alone on its best type of GPU. The same network therefore works on any cluster and with any jobs.
//
// # Gangs
//
// An action starts all GPUs of a job:
//
//   - the lowest free GPUs of the group, if they are enough;
//   - otherwise, if no group of this type has enough GPUs for the gang, all usable GPUs of the group, and then those of
//     other groups of the same type, beginning with the group with the most usable GPUs;
//   - with sharing, the GPUs of the running job whose pair has the largest gain: the sum of both speeds, each relative
//     to its speed alone. Jobs share only if the gain is above 1.
//
// These rules use one type of GPU. Only the action that follows the policy Encoding.Advice can place a gang on GPUs of
// several types.
type Encoding struct {
	// Oldest and Shortest are the numbers of jobs that actions can start. These are the first jobs of the queue
	// (Oldest), and those with the least remaining time among the others (Shortest).
	Oldest   int  `json:"oldest"`
	Shortest int  `json:"shortest"`
	Share    bool `json:"share"`
	// Advice is the name of a policy of package scheduler, the baseline; "" for none. The network then has a further
	// action, which follows the baseline. Only this action can place a gang on GPUs of several types. Imitation also
	// uses the baseline, and the network learns when to depart from it. While no job waits, only the baseline decides,
	// and may move running jobs. It must depend only on the present state, so the policy maxmin is not possible.
	Advice string `json:"advice"`
	// Ingested adds the normalised facts of package features, each with a mask that states whether it is known. Facts
	// about GPUs go to the image, facts about the cluster to the facts, and facts about a job to the pairs of its
	// actions.
	Ingested bool `json:"ingested"`
	// Utilization and Temperature state whether the cluster of the training run had these measurements of a GPU. If
	// not, the network has not learnt from them, and gets them as unknown.
	Utilization bool `json:"utilization,omitempty"`
	Temperature bool `json:"temperature,omitempty"`
	// Similarity adds the scores of package hyper to the pairs. With them, each run learns from its own placements
	// which jobs run well on which GPUs. The value is the number of dimensions of the vectors; 0: no scores.
	Similarity int `json:"similarity"`
}

// MinSimilarity and MaxSimilarity limit Encoding.Similarity, unless it is 0.
const (
	MinSimilarity = hyper.MinDimension
	MaxSimilarity = hyper.MaxDimension
)

// DefaultEncoding is the encoding of the built-in network.
func DefaultEncoding() Encoding {
	return Encoding{Oldest: 2, Shortest: 4, Share: true, Advice: "gang"}
}

func (e Encoding) check() error {
	if e.Similarity != 0 && (e.Similarity < MinSimilarity || e.Similarity > MaxSimilarity) {
		return fmt.Errorf("encoding: got %d dimensions of the similarity scores, want 0, or %d to %d", e.Similarity,
			MinSimilarity, MaxSimilarity)
	}
	if e.Oldest < 0 || e.Shortest < 0 || e.Oldest+e.Shortest < 1 || e.Oldest+e.Shortest > 1<<10 {
		return fmt.Errorf("encoding: got %+v, want 1 to 1024 jobs, and no negative number", e)
	}
	return nil
}

// Channels of the image.
const (
	// number of jobs on the GPU, relative to the largest number: the planned utilization
	imageBusy  = Weights + iota
	imageUntil // time until the jobs on the GPU end
	imageSpeed // mean speed of all kinds of jobs on this type, relative to the best type
	imageChannels
)

// Facts that precede the facts of single jobs.
const (
	factQueue   = iota // length of the queue: x/(1+x) with x = queue/GPUs
	factRunning        // number of running jobs per available GPU
	factFree           // fraction of GPUs without a job
	factWork           // waiting work: x/(1+x) with x = GPU seconds / (unit · GPUs)
	factHidden         // fraction of the queue that actions cannot start
	factMean           // mean priority of the jobs that actions can start
	factClass          // fraction of each class among the jobs that actions can start
	factJobs    = factClass + scheduler.Classes
)

// Facts of each job: priority and one-hot class.
const jobFacts = 1 + scheduler.Classes

// Features of a pair. With Encoding.Ingested, the facts of package features about the job and their masks follow.
const (
	pairPossible = iota
	pairTime     // running time on these GPUs
	pairBest     // running time on the best type
	pairSpeed    // speed relative to the best type
	pairMargin   // pairSpeed minus its mean over the other jobs: comparative advantage
	pairGPUs     // fraction of the available GPUs
	pairCost     // GPU seconds
	pairWaited   // time since arrival
	pairPriority //
	pairShorter  // fraction of the shown jobs that are shorter than this one
	pairUsable   // usable GPUs of the group / GPUs of the gang, at most 1
	pairSoon     // time until the group has free GPUs for the gang; see soon
	pairSpread   // 1 if the gang would span machines
	pairShare    // 1 if the job would share GPUs
	pairOwn      // speed of the job relative to its speed alone
	pairPartner  // speed of the partner relative to its speed alone
	pairEnds     // running time of the partner
	pairAdvised  // 1 for the action of the baseline
	pairScore    // similarity score of package hyper
	pairClass    // one-hot class
	pairNumbers  = pairClass + scheduler.Classes
)

// Shape returns the size of the observations for clusters with at most this number of groups (rows), and of GPUs in a
// group (slots).
func (e Encoding) Shape(rows, slots int) Shape {
	jobs := e.Oldest + e.Shortest
	s := Shape{Channels: imageChannels, Rows: rows, Slots: slots, Facts: factJobs + jobs*jobFacts, Jobs: jobs, Ways: 1,
		Pair: pairNumbers}
	if e.Share {
		s.Ways = 2
	}
	if e.Advice != "" {
		s.Extra = 1
	}
	if e.Ingested { // each fact with its mask
		s.Channels += 2 * features.PerGPU
		s.Facts += 2 * features.PerCluster
		s.Pair += 2 * features.PerJob
	}
	return s
}

// Grid returns the number of groups of a cluster, and the number of GPUs of its largest group.
func Grid(c *scheduler.Cluster) (rows, slots int) {
	for _, g := range groupsOf(c) {
		rows, slots = rows+1, max(slots, len(g.gpus))
	}
	return rows, slots
}

// group is the set of GPUs of one type on one machine, a row of the image.
type group struct {
	typ, machine int
	gpus         []int
}

// groupsOf returns the groups of a cluster, in the order of machines and types.
func groupsOf(c *scheduler.Cluster) []group {
	var groups []group
	at := make([]int, len(c.Types)) // index into groups, by type
	for m := range c.Machines {
		for _, gpu := range c.Machines[m].GPUs {
			t := c.GPUs[gpu].Type
			if at[t] >= len(groups) || groups[at[t]].machine != m || groups[at[t]].typ != t {
				at[t] = len(groups)
				groups = append(groups, group{typ: t, machine: m})
			}
			groups[at[t]].gpus = append(groups[at[t]].gpus, gpu)
		}
	}
	return groups
}
