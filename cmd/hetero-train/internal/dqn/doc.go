// Package dqn learns a scheduling policy with deep Q-learning, on the simulator of package simulate. It is the only
// part of the scheduler that imports the engine, which trains the network on a CPU or a GPU.
//
// # Use
//
//	environments, err := dqn.NewEnvironments(options.Environments, problem, dqn.Source{Setup: setup})
//	learner, err := dqn.NewLearner(dev, options, workers, environments)
//	err = learner.Run(ctx, episodes, now, report)          // when ctx ends, Run returns after the current round
//	saved, err := learner.Save(ctx, store, version, text)  // text: problem as JSON
//
//	c, skipped, err := checkpoint.Latest(dir)
//	learner, err := dqn.Resume(ctx, dev, c, workers, environments, nil)  // continues exactly
//	policy, err := dqn.OpenPolicy(dev, c, scheduler.Options{})      // policy "dqn" of package scheduler
//	policy, err := dqn.OpenTrained(dev, scheduler.Options{})        // the same, with the built-in network
//	policy.SetAlone()                                               // the network decides without its baseline
//	policy.SetAgents()                                              // the same, with one agent for each machine
//
// [Learner] learns any [Environment], a small interface of observations, masks and rewards. [NewEnvironments] creates
// the environments of a [Problem]: episodes of jobs on the cluster of a [Source], and on random clusters.
//
// # State
//
// An [Observation] has three parts. The image is the matrix of GPUs. Rows are groups of equal GPUs of one machine.
// Channels contain the planned utilization, the time until the GPUs are free, and the speed. The facts describe the
// queue: its length, and the work, priorities and classes of its jobs. The pairs describe each action: running time of
// the job on these GPUs, speed relative to its best GPUs, comparative advantage, effect of sharing, similarity score.
// All values are normalised to about [0, 1], and no value identifies a machine, a type or a kind. Encoding.Ingested
// adds the facts of package features, which are absolute values, such as the memory of a GPU. [Encoding] defines the
// layout.
//
// The cluster determines the number of rows and the number of GPUs in a row. The weights of a [Network] do not depend
// on these numbers, so one network can decide on any cluster. A training run pads all observations to the size of the
// largest one. Empty rows and slots have no effect.
//
// # Actions and rewards
//
// Most actions start one of K jobs of the queue on a group of GPUs, alone or sharing. One further action follows a
// baseline (Encoding.Advice), and the last action waits for the next event. While no job waits, only the baseline
// decides. It may move a running job, and only the baseline may then restart this job. Impossible actions are masked,
// both when the network acts and in the targets. The reward of a step is
//
//	-(seconds of all jobs in the system + lambda * seconds of idle GPUs) / (10 units)
//
// over the time of the step. The unit is the geometric mean of the running times of the jobs. The sum of an episode's
// rewards is therefore exactly -(sum of all completion times + lambda * sum of all idle times), in these units.
//
// # Learning
//
// [Network] is a convolutional network over the image, followed by two fully connected layers, and scores each action.
// [Learner] uses Adam, an exploration schedule, replay memory and target weights; double DQN, prioritised replay,
// n-step returns and imitation of a baseline are options. Environments run in lockstep, so that one pass of the network
// decides for all of them. Only the value of the chosen action has a gradient.
//
// A [Policy] follows its baseline in states with more jobs than occurred in training (Progress.Jobs, which environments
// report as a [Counter]). Q-values are sums over jobs, and the network was not trained on the larger sums of more jobs.
// After SetAlone, a policy has no baseline, and always follows its network.
//
// Discounting follows the simulated time: a cost after Problem.Horizon units of time is discounted to 1/e. End a
// training run with a learning rate of at most 1e-4, because at higher rates, successive networks differ much from each
// other.
//
// # Determinism
//
// Equal options give equal networks on devices of the same kind, independent of the number of workers. A checkpoint
// contains weights, target weights, moments, the state of the random generator, and the replay memory without its
// states. A resumed run repeats the actions of the episodes to restore states and environments. It is bit-equal to an
// uninterrupted training run.
//
// # Errors
//
//   - [*SeveralTypesError]: a job needs GPUs of several types, and the network has no baseline that could place it
//   - [ErrDiverged]: the training loss is not finite
//   - errors of package checkpoint (*checkpoint.MismatchError: the weights belong to another network)
//   - errors of the device
//   - errors without a type: options out of range, environments that differ from those of a checkpoint
//
// # Sources
//
//   - Mnih et al., Human-level control through deep reinforcement learning, Nature 2015
//   - van Hasselt et al., Deep reinforcement learning with double Q-learning, AAAI 2016
//   - Schaul et al., Prioritized experience replay, ICLR 2016
//   - Hester et al., Deep Q-learning from demonstrations, AAAI 2018 (the margin loss of imitation)
//   - Ng et al., Policy invariance under reward transformations, ICML 1999 (Problem.Shaped)
package dqn
