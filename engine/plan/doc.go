// Package plan compiles a graph for one device: it chooses kernels, layouts, order and memory.
//
// [Compile] turns a graph into a [Plan] without allocating device memory for tensors:
//
//   - It compiles every node, and decomposes ops that the device lacks.
//   - It keeps the layouts that the device chooses from node to node, and inserts a reorder only where two nodes
//     disagree.
//   - It finds tensors that may share memory, and places every tensor in one arena.
//
// The plan then knows its bytes exactly ([Plan.ArenaBytes]). [Plan.Bind] makes it runnable in given memory. Running a
// plan allocates nothing.
//
//	cache := plan.NewCache(dev)
//	p, err := plan.Compile(cache, g, nil)           // chooses the layout of parameters …
//	state, err := plan.NewState(cache, p.Params())  // … which is then fixed for the model
//	eval, err := plan.Compile(cache, evalGraph, p.Params())
//	err = p.Bind(arena, state)                      // arena: at least p.ArenaBytes(); plans may share one
//	err = p.Prepare(stream)                         // once per optimizer step
//	err = p.Forward(stream); err = p.Backward(stream)
//
// # Parameters
//
// All parameters are in one flat buffer, in the order in which the backward pass completes their gradients. A bucket of
// gradients is therefore a range of the gradient buffer. Each parameter has ONE canonical layout, that of its weight
// gradient; value, gradient and optimizer moments share it. The Prepare program copies canonical values to the other
// layouts and types that kernels need (bf16, backward-data's). Padding between and inside parameters is zero. Ranks
// whose devices choose different layouts compile their first plan with [CompilePlain].
//
// # Several ranks
//
// A graph whose layers exchange values with other ranks gives a plan with [Plan.Exchanges]. [Plan.BindWired] binds it
// with two events per exchange. The pass records the first event when this rank's values are in the exchange's memory,
// and waits for the second before it reads the result. A pass is therefore still one call while a communicator's thread
// does the exchange, and a launch that does not need the result runs in the meantime.
//
// BindWired also accepts steps that run as soon as a part of the gradient buffer is final. Gradsync uses them for the
// all-reduce of a bucket, which then overlaps the rest of the pass ([Plan.BackwardFinal]). A rank without samples runs
// the plan of [CompileIdle]. A plan for one rank has no events, and no steps besides its launches.
//
// # Duties of the caller
//
// One goroutine at a time uses a plan. The caller closes plans before the memory and the cache that they use.
//
// # Errors
//
// The errors of Compile name the node and the cause. device.ErrUnsupported in the chain means that the device supports
// neither the op nor its decomposition. Bind returns an error for an arena that is too small.
package plan
