package system

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// CPU describes the processors.
type CPU struct {
	Model    string
	Vendor   string
	Sockets  int
	Cores    int      // number of physical cores of the whole machine; 0: unknown
	Threads  int      // number of logical CPUs of the whole machine
	Features []string // features that the CPU has, of the list below, by their names in Linux

	Usable int     // number of logical CPUs on which this process may run (affinity, cpuset)
	Quota  float64 // CPU time per second that this process may use: Usable, or less with a CPU quota
}

// features lists the instruction sets that influence the choice of kernels, in Linux's names.
var features = []string{
	"avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16",
	"avx512_fp16",
	"avx_vnni", "amx_tile", "amx_bf16", "amx_int8",
	"asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2",
}

// Has reports whether the CPU and the operating system support an instruction set.
func (c CPU) Has(feature string) bool { return slices.Contains(c.Features, feature) }

func readCPU(root fs.FS) (CPU, error) {
	text, err := fs.ReadFile(root, "proc/cpuinfo")
	if err != nil {
		return CPU{}, err
	}
	c := parseCPUInfo(text)
	if c.Threads == 0 {
		return c, fmt.Errorf("proc/cpuinfo: no processor")
	}
	if c.Cores == 0 {
		c.Sockets, c.Cores = readTopology(root)
	}
	if c.Cores == 0 { // neither file contains the number, for example on a virtual machine without topology
		c.Sockets, c.Cores = 1, c.Threads
	}
	status, err := fs.ReadFile(root, "proc/self/status")
	if err != nil {
		return c, err
	}
	for key, value := range keyValues(status) {
		if key == "Cpus_allowed_list" {
			c.Usable, err = countList(value)
		}
	}
	if err == nil && c.Usable == 0 {
		err = fmt.Errorf("proc/self/status: no Cpus_allowed_list")
	}
	return c, err
}

// parseCPUInfo parses proc/cpuinfo of x86 and of ARM. On ARM, the file contains neither model nor topology.
func parseCPUInfo(text []byte) CPU {
	var c CPU
	var socket, implementer, part string
	sockets, cores := map[string]bool{}, map[string]bool{}
	for key, value := range keyValues(text) {
		switch key {
		case "processor":
			c.Threads++
		case "model name":
			c.Model = value
		case "vendor_id":
			c.Vendor = value
		case "physical id":
			socket = value
			sockets[socket] = true
		case "core id":
			cores[socket+"/"+value] = true
		case "CPU implementer":
			implementer = value
		case "CPU part":
			part = value
		case "flags", "Features":
			if c.Features == nil {
				c.Features = knownFeatures(strings.Fields(value))
			}
		}
	}
	c.Sockets, c.Cores = len(sockets), len(cores)
	if implementer != "" {
		c.Vendor = armVendor(implementer)
		if c.Model == "" {
			if c.Model = armModels[implementer+" "+part]; c.Model == "" {
				c.Model = fmt.Sprintf("%s part %s", c.Vendor, part)
			}
		}
	}
	return c
}

func knownFeatures(has []string) []string {
	known := []string{}
	for _, f := range features {
		if slices.Contains(has, f) {
			known = append(known, f)
		}
	}
	return known
}

// armModels contains the names of ARM CPUs by implementer and part (MIDR_EL1), as listed in cputype.h of the Linux
// kernel.
var armModels = map[string]string{
	"0x41 0xd03": "Cortex-A53", "0x41 0xd07": "Cortex-A57", "0x41 0xd08": "Cortex-A72", "0x41 0xd0b": "Cortex-A76",
	"0x41 0xd0c": "Neoverse N1", "0x41 0xd40": "Neoverse V1", "0x41 0xd49": "Neoverse N2", "0x41 0xd4f": "Neoverse V2",
	"0x41 0xd84": "Neoverse V3",
	"0x46 0x001": "A64FX", "0x48 0xd01": "Kunpeng 920", "0xc0 0xac3": "Ampere-1",
	"0x61 0x022": "Apple M1 Icestorm", "0x61 0x023": "Apple M1 Firestorm", "0x61 0x032": "Apple M2 Blizzard",
	"0x61 0x033": "Apple M2 Avalanche",
}

// armVendor returns the vendor of an ARM CPU (Arm Architecture Reference Manual, MIDR_EL1).
func armVendor(implementer string) string {
	switch implementer {
	case "0x41":
		return "ARM"
	case "0x46":
		return "Fujitsu"
	case "0x48":
		return "HiSilicon"
	case "0x4e":
		return "NVIDIA"
	case "0x51":
		return "Qualcomm"
	case "0x61":
		return "Apple"
	case "0xc0":
		return "Ampere"
	}
	return "implementer " + implementer
}

// readTopology counts sockets and cores in the folder sys.
func readTopology(root fs.FS) (sockets, cores int) {
	packages, ids := map[string]bool{}, map[string]bool{}
	folders, _ := fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*/topology") // only an invalid pattern is an error
	for _, folder := range folders {
		socket, err1 := readLine(root, path.Join(folder, "physical_package_id"))
		core, err2 := readLine(root, path.Join(folder, "core_id"))
		if err1 == nil && err2 == nil {
			packages[socket] = true
			ids[socket+"/"+core] = true
		}
	}
	return len(packages), len(ids)
}

// countList returns how many numbers a list like "0-3,8,10-11" contains.
func countList(list string) (int, error) {
	total := 0
	for _, part := range strings.Split(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		to := from
		if err == nil && isRange {
			to, err = strconv.Atoi(last)
		}
		if err != nil || to < from || from < 0 {
			return 0, fmt.Errorf("CPU list: got %q, want numbers and ranges such as 0-3,8", list)
		}
		total += to - from + 1
	}
	return total, nil
}
