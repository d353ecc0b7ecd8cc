package session

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/cluster/discovery"
	"github.com/hetero-train/hetero-train/engine/config"
)

// variablePrefix starts the names of all environment variables of this project.
const variablePrefix = "HETERO_"

// Variables lists the environment variables that users can set. First come those that the program and its libraries
// read, then those of the build, then those of the tests.
var Variables = strings.Fields(`
	HETERO_TRAIN HETERO_TOKEN HETERO_TOKEN_FILE HETERO_DASHBOARD_TOKEN HETERO_METRICS_TOKEN HETERO_NOTIFY_WEBHOOK_SECRET
	HETERO_LIB_DIR HETERO_CUDA_LIBS HETERO_CPU_ISA HETERO_CPU_KERNELS HETERO_CPU_TIMES HETERO_CUDA_NARROW_GRADIENTS
	HETERO_WEBP
	HETERO_LAB_CGROUP HETERO_LAB_CPUS HETERO_LAB_INTERFACE HETERO_LAB_LINK HETERO_LAB_SLOWDOWN

	HETERO_ONEDNN HETERO_ONEDNN_DIR HETERO_CUDA HETERO_CUDA_ARCHS HETERO_NVCC HETERO_NCCL HETERO_SANITIZE
	HETERO_WERROR HETERO_INSTALL HETERO_FETCHED HETERO_BUILD HETERO_PYTHON HETERO_DEBIAN_MIRROR

	HETERO_REQUIRE HETERO_DATA HETERO_TEXT HETERO_LARGE HETERO_HOSTILE HETERO_CLUSTER HETERO_ARM64 HETERO_SCREENSHOTS HETERO_MLFLOW HETERO_GAVEL HETERO_TORCH HETERO_SEAWEEDFS
	HETERO_BENCH_IMAGES HETERO_DEVICETEST_FAULT HETERO_PEER_RESTARTED`)

// internalVariables lists the variables that one process of this program sets for another.
var internalVariables = []string{SupervisedVariable, "HETERO_LIFELINE_FD", "HETERO_LISTENER_FD", "HETERO_CAUSE_FD",
	"HETERO_REFUSE_THREADS"}

// testPrefixes start the names of variables that tests, fake devices and the CUDA shim read.
var testPrefixes = []string{"HETERO_TEST_", "HETERO_SHIM_", "HETERO_FAKE_"}

// KnownVariable reports whether this version reads an environment variable whose name starts with HETERO_.
func KnownVariable(name string) bool {
	return slices.Contains(Variables, name) || slices.Contains(internalVariables, name) ||
		strings.HasSuffix(name, "_TEST_ROLE") ||
		slices.ContainsFunc(testPrefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// UnknownVariables returns a warning for each environment variable whose name starts with HETERO_ and that this version
// does not read. The result is empty on a rank that a supervisor has started, because the supervisor warns. It is also
// empty on ranks other than the first rank of a machine.
func (e Environment) UnknownVariables() (warnings []string) {
	if _, supervised := e.Lookup(SupervisedVariable); supervised {
		return nil // the process that started this rank warns
	}
	if assigned, err := discovery.Find(discovery.Options{}, e.Environ); err == nil && assigned.Rank > 0 &&
		assigned.LocalRank != 0 {
		return nil
	}
	known := make([]string, len(Variables))
	for i, name := range Variables {
		known[i] = strings.TrimPrefix(name, variablePrefix)
	}
	for _, pair := range e.Environ {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, variablePrefix) || KnownVariable(name) {
			continue
		}
		text := fmt.Sprintf("environment variable %s has no effect: this version has no such variable", name)
		if near := config.Closest(strings.TrimPrefix(name, variablePrefix), known); near != "" {
			text += "; nearest: " + variablePrefix + near
		}
		warnings = append(warnings, text)
	}
	slices.Sort(warnings)
	return warnings
}
