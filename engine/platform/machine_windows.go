package platform

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// System is the name of the operating system.
const System = "Windows"

// Describe describes this machine. If a part cannot be read, it returns the other parts together with an error.
func Describe() (Machine, error) {
	var m Machine
	var name, cpu, memory error
	m.Name, name = os.Hostname()
	v := windows.RtlGetVersion()
	m.Kernel = fmt.Sprintf("%d.%d.%d", v.MajorVersion, v.MinorVersion, v.BuildNumber)
	m.CPU, cpu = modelOfCPU()
	m.MemoryBytes, m.AvailableBytes, memory = physicalMemory()
	return m, errors.Join(name, cpu, memory)
}

func modelOfCPU() (string, error) {
	const path = `HARDWARE\DESCRIPTION\System\CentralProcessor\0`
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE)
	if err != nil {
		return "", fmt.Errorf("open %s: %w", path, err)
	}
	defer key.Close() //nolint:errcheck // the key was only read
	model, _, err := key.GetStringValue("ProcessorNameString")
	return model, err
}

// memoryStatus is the structure MEMORYSTATUSEX of the Windows API.
type memoryStatus struct {
	length, load                         uint32
	total, available                     uint64
	totalPageFile, availablePageFile     uint64
	totalVirtual, availableVirtual, more uint64
}

var globalMemoryStatusEx = windows.NewLazySystemDLL("kernel32.dll").NewProc("GlobalMemoryStatusEx")

func physicalMemory() (total, available int64, err error) {
	var s memoryStatus
	s.length = uint32(unsafe.Sizeof(s))
	if ok, _, err := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&s))); ok == 0 {
		return 0, 0, os.NewSyscallError("GlobalMemoryStatusEx", err)
	}
	return int64(s.total), int64(s.available), nil
}
