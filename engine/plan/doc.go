// Package plan compiles a graph for one device: it chooses kernels, layouts, order and memory.
//
// [Compile] turns a graph into a [Plan] without allocating device memory for tensors:
//
//   - It compiles every node, and decomposes ops that the device lacks. If the device computes the loss over a
//     vocabulary and its gradient with one op, the backward pass runs this op, and computes the loss.
//   - It keeps the layouts that the device chooses between nodes, and inserts a reorder only where two nodes need
//     different layouts.
//   - It finds tensors that may share memory, and places every tensor in one arena.
//
// The plan then states exactly how many bytes it needs ([Plan.ArenaBytes]). [Plan.Bind] makes the plan runnable in
// given memory. Running a plan allocates nothing.
//
//	cache := plan.NewCache(dev)
//	p, err := plan.Compile(cache, g, nil)           // chooses the layout of parameters …
//	state, err := plan.NewState(cache, p.Params())  // … which is then fixed for the model
//	eval, err := plan.Compile(cache, evalGraph, p.Params())
//	err = p.Bind(arena, state)                      // arena has at least p.ArenaBytes(); plans may use the same arena
//	err = p.Prepare(stream)                         // once per optimizer step
//	err = p.Forward(stream); err = p.Backward(stream)
//
// # Parameters
//
// All parameters are in one flat buffer, in the order in which the backward pass completes their gradients. A bucket of
// gradients is therefore a range of the gradient buffer. Each parameter has ONE canonical layout, that of its weight
// gradient. Value, gradient and optimizer moments have this layout. The Prepare program copies the canonical values to
// the other layouts and types that kernels need, such as bf16 or the layout of backward-data. Padding between and
// inside parameters is zero. If the devices of the ranks choose different layouts, all ranks compile their first plan
// with [CompilePlain].
//
// # Several ranks
//
// If the layers of a graph exchange values with other ranks, [Plan.Exchanges] lists the exchanges. [Plan.BindWired]
// binds such a plan with two events per exchange. The pass records the first event when this rank's values are in the
// exchange's memory. It waits for the second event before it reads the result. A pass is therefore still one call. A
// thread of the communicator performs the exchange; launches that do not need the result run in the meantime.
//
// BindWired also accepts steps that run as soon as a part of the gradient buffer is final. Package gradsync uses such
// steps to start the all-reduce of a bucket, which then overlaps the rest of the pass ([Plan.BackwardFinal]). A rank
// without samples runs the plan of [CompileIdle]. A plan for one rank contains only launches: no events and no other
// steps.
//
// # Duties of the caller
//
// A plan is not safe for concurrent use. The caller must close plans before the memory and the cache that they use.
//
// # Errors
//
// The errors of Compile name the node and the cause. device.ErrUnsupported in the chain means that the device supports
// neither the op nor its decomposition. Bind returns an error for an arena that is too small.
package plan
