// Package limits contains the sizes of the data structures of package scheduler. Tests lower the sizes, so that small
// clusters reach them. No size changes a decision. Do not change a size while a policy or a simulation exists.
package limits

var (
	// Block is the largest number of items in a block of a sorted list. With larger blocks, insertions and removals
	// move more items; with smaller blocks, a list has more blocks to search.
	Block = 128
	// Demands is the largest number of demands of CPU cores and memory with data structures of their own. Each of them
	// takes time at each change. A search for jobs with another demand reads all machines with free GPUs.
	Demands = 64
	// Groups is the number of groups of running jobs above which groups without jobs are dropped.
	Groups = 4096
	// Journal is the number of changes of a kind that a journal keeps at least. A reader that is further behind reads
	// the whole state.
	Journal = 1 << 14
)
