// Package dqn learns a scheduling policy with deep Q-learning, on the simulator of package simulate. It is the only part
// of the scheduler that imports the engine: the engine trains the network, on a CPU or a GPU.
//
// # Use
//
//	environments, err := dqn.NewEnvironments(options.Environments, problem, setup)
//	learner, err := dqn.NewLearner(dev, options, workers, environments)
//	err = learner.Run(ctx, episodes, now, report)          // when ctx ends, Run returns after the current round
//	saved, err := learner.Save(ctx, store, version, text)  // text: problem as JSON
//
//	c, skipped, err := checkpoint.Latest(dir)
//	learner, err := dqn.Resume(dev, c, workers, environments, nil)  // continues exactly
//	policy, err := dqn.OpenPolicy(dev, c, scheduler.Options{})      // policy "dqn" of package scheduler
//	policy, err := dqn.OpenTrained(dev, scheduler.Options{})        // the same, with the built-in network
//
// [Learner] learns any [Environment], a small interface of observations, masks and rewards. [NewEnvironments] makes the
// environments of a [Problem]: episodes of jobs on a cluster.
//
// # State
//
// An [Observation] has three parts. The image is the matrix of GPUs: rows are groups of equal GPUs of one machine, and
// channels state availability, planned utilization, time until free, and speed. The facts describe the queue: its
// length, work, priorities and classes of jobs. The pairs describe each action: running time of the job on these GPUs,
// speed relative to its best GPUs, comparative advantage, effect of sharing, similarity score. Everything is normalised
// to about [0, 1]. [Encoding] defines the layout.
//
// # Actions and rewards
//
// An action starts one of K jobs of the queue on a group of GPUs, alone or sharing, takes the action of a baseline
// (Encoding.Advice), or waits for the next event. Impossible actions are masked, both in decisions and in training
// targets. The reward of a step is
//
//	-(seconds of all jobs in the system + lambda * seconds of idle GPUs) / (10 Unit)
//
// over the time of the step. The sum over an episode is therefore exactly the sum of all completion times and weighted
// idle times.
//
// # Learning
//
// [Network] is a convolutional network over the image, followed by two fully connected layers. [Learner] uses Adam, an
// exploration schedule, replay memory and target weights; double DQN, prioritised replay, n-step returns and imitation
// of a baseline are options. Environments run in lockstep: one pass of the network decides for all of them. Only the
// value of the chosen action has a gradient.
//
// Discounting follows the simulated time: the weight of a cost after Problem.Horizon seconds is 1/e. At learning rates
// above 1e-4, networks of one training differ much from each other, so end a training with a smaller rate.
//
// # Determinism
//
// Equal options give equal networks on devices of the same kind, independent of the number of workers. A checkpoint
// contains weights, target weights, moments, replay memory, the state of the random generator, and the actions of the
// current episodes, which restore the environments. A resumed training is bit-equal to an uninterrupted one.
//
// # Errors
//
//   - [*ClusterError]: the cluster has more groups than the network has rows
//   - [ErrDiverged]: the loss of a training is not finite
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
