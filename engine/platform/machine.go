package platform

// Machine describes this machine. A value that is unknown is empty or 0.
type Machine struct {
	Name           string // host name
	Kernel         string // release of the kernel
	CPU            string // model of the CPU
	Cores          int    // physical cores
	MemoryBytes    int64
	AvailableBytes int64 // memory that is available without swapping
}
