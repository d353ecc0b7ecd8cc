// Package optim updates parameters: SGD and AdamW over the flat buffers of a plan.State, gradient
// clipping, and learning-rate schedules.
//
// An [Optimizer] is one program of a few launches: the norm of all gradients, its clipping factor, the
// update. The learning rate and the loss scale are written to device memory before each step, so the program never changes. A gradient
// norm that is not finite leaves every value as it is; [Optimizer.Result] tells after the step.
//
// What differs between parameters, weight decay and learning rates by layer, lies in the op's segments: one pass, whatever the groups. An [Average] keeps
// exponential moving averages beside a state, [Norms] measures single parameters in the steps that ask for it.
//
// A [Schedule] is a pure function from the step number to the learning rate.
package optim
