package platform

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// System is the name of the operating system.
const System = "macOS, Darwin"

// Describe describes this machine. If a part cannot be read, it returns the other parts together with an error.
func Describe() (Machine, error) {
	var m Machine
	var name, kernel, cpu, cores, memory error
	m.Name, name = os.Hostname()
	m.Kernel, kernel = unix.Sysctl("kern.osrelease")
	m.CPU, cpu = unix.Sysctl("machdep.cpu.brand_string")
	number, cores := unix.SysctlUint32("hw.physicalcpu")
	bytes, memory := unix.SysctlUint64("hw.memsize")
	m.Cores, m.MemoryBytes = int(number), int64(bytes)
	return m, errors.Join(name, kernel, cpu, cores, memory)
}
