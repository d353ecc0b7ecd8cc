// Package measure contains micro-benchmarks of the hardware: matrix products, memory, copies, disks, the links between
// ranks, and all-reduces.
//
// [Speed] measures the figures of a compute score in slices, so that ranks of one machine can take turns. Figures that
// were not measured are null in JSON.
//
// Every function takes a context and a budget, the time that it may use. The work starts small, and grows while the next
// larger piece is expected to fit, so the function ends close to its budget on any hardware. Results are the best of
// several passes if other work may have interfered (arithmetic, memory), and the median if interference is part of the
// result (all-reduces).
//
// All ranks call Links and AllReduce at the same time, and agree on the next measurement through a [Group].
//
// Units are in the names of fields. GB and TFLOP are decimal. Errors are those of the device, the communicator, the
// network or the file, and context errors.
package measure
