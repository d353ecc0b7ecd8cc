// Package optim updates parameters. It provides SGD and AdamW over the flat buffers of a plan.State, gradient clipping,
// averages of weights, and learning-rate schedules.
//
// An [Optimizer] is one program of a few launches, which compute the norm of all gradients, the clipping factor and the
// update. The learning rate and the loss scale are written to device memory before each step, so the program never
// changes. If the gradient norm is not finite, the step does not change any value, and [Optimizer.Result] reports this.
//
// The update op has segments, each with its own weight decay and learning rate. The update is therefore one pass over
// the buffers, for any number of parameter groups. An [Average] keeps exponential moving averages of a state. [Norms]
// measures norms of single parameters in selected steps.
//
// A [Schedule] is a pure function from the step number to the learning rate.
//
// # Duties of the caller
//
// The caller must wait for the stream before it reads results, and before the next step, which reuses the host memory
// of the scalars. The caller closes optimizers and averages before the state that they update.
package optim
