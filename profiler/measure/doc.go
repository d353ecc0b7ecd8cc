// Package measure contains micro-benchmarks of the hardware: matrix products, memory, copies, disks, the links between
// ranks, and all-reduces.
//
// [Speed] measures the values that determine a compute score. It works in short slices, so that the ranks of one
// machine can take turns. Values that were not measured are null in JSON.
//
// Every function takes a context and a budget, which is the time that it may use. It starts with a small amount of
// work. It increases the amount as long as the next step is expected to fit into the budget. It therefore uses most of
// its budget on any hardware.
//
// For arithmetic and memory, the result is the best of several passes, because other work may have disturbed some of
// them. For all-reduces, the result is the median, because disturbances by other work are part of the result.
//
// All ranks must call Links and AllReduce at the same time. They agree on the next measurement through a [Group].
//
// Names of fields contain units. GB and TFLOP are decimal. The functions return the errors of the device, the
// communicator, the network, the file or the context.
package measure
