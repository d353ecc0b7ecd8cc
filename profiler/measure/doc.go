// Package measure finds out what the hardware does, by doing it: matrix products, memory, copies, disks, the links between ranks and
// their sums.
//
// [Speed] measures what a compute score needs, in slices, so that ranks of one machine can take turns. Figures that were not measured are null in JSON.
//
// Every function takes a context and a budget, the time that it may use, and ends near it whatever the hardware: work starts
// small and grows only as long as the next larger piece is expected to fit. A result is the best of several passes where others may have
// interfered (arithmetic, memory), the median where interference belongs to it (sums of all ranks).
//
// Links and AllReduce are called by all ranks at once; they agree on what to do next through a [Group].
//
// Units are in the names of fields. GB and TFLOP are decimal.
package measure
