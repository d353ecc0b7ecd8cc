// Package plan says how a graph runs on one device: kernels, layouts, order, memory.
//
// [Compile] turns a graph into a [Plan] without allocating device memory for tensors: it compiles every node,
// carries the layouts that the device chooses from node to node, inserts a reorder only where two nodes disagree,
// decomposes ops that the device lacks, finds what may share memory, and places every tensor in one arena. The
// plan then knows its bytes exactly ([Plan.ArenaBytes]). [Plan.Bind] makes it runnable in given memory; running allocates nothing.
//
//	cache := plan.NewCache(dev)
//	p, err := plan.Compile(cache, g, nil)           // the layout of parameters is chosen here …
//	state, err := plan.NewState(cache, p.Params())  // … and fixed for the model
//	eval, err := plan.Compile(cache, evalGraph, p.Params())
//	err = p.Bind(arena, state)                      // arena: at least p.ArenaBytes(); plans may share one
//	err = p.Prepare(stream)                         // once an optimizer step
//	err = p.Forward(stream); err = p.Backward(stream)
//
// # Parameters
//
// All parameters lie in one flat buffer, in the order in which backward finishes their gradients, so that a
// bucket of gradients is a range of the gradient buffer. Each has ONE canonical layout, that of its weight
// gradient; value, gradient and optimizer moments share it. Other layouts and types that kernels want (bf16,
// backward-data's) are copies, made from the canonical values by the Prepare program. Padding between and inside parameters is zero.
// Ranks whose devices choose unlike layouts compile their first plan with [CompilePlain].
//
// # Several ranks
//
// A graph whose layers exchange values with other ranks gives a plan with [Plan.Exchanges]. It is bound by [Plan.BindWired] with two events for each:
// the pass records one when this rank's values lie in the exchange's memory, and waits for the other before it reads the
// result, so that a pass is still one call while a communicator's thread does the exchange. A launch that does not need
// the result runs meanwhile. The same call takes steps to be run as soon as a part of the gradient buffer is final: those of a
// bucket, whose all-reduce then overlaps the rest of the pass ([Plan.BackwardFinal]). A rank without samples runs the plan of [CompileIdle].
// Package gradsync does all this; a plan for one rank has no events and no steps but its launches.
//
// # Errors
//
// Compile says which node failed and why; device.ErrUnsupported in the chain means that neither the op nor its
// decomposition runs on this device. Bind refuses an arena that is too small. A plan is used by one goroutine at a time.
package plan
