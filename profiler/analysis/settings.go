package analysis

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/regular"
	"github.com/hetero-train/hetero-train/profiler/runs"
)

const (
	benchmarkFile = "benchmark.json"
	resolvedFile  = "configs/resolved.toml"
	mostTextBytes = 1 << 20
	// mostSettings is the largest size of a settings file that is read, in bytes. A file with all keys is smaller. The
	// limit is low because the time to parse TOML grows with the square of the size.
	mostSettings = 128 << 10
)

// benchmark is the contents of benchmark.json, written by scripts/run_benchmark.sh: properties that are not in the
// settings.
type benchmark struct {
	Schema    int      `json:"schema"`
	Policy    string   `json:"policy"`
	Model     string   `json:"model"`
	Dataset   string   `json:"dataset"`
	Scenario  string   `json:"scenario"`
	Seed      int64    `json:"seed"`
	Ranks     int      `json:"ranks"` // 0 means one rank per device of the machine
	BatchSize int64    `json:"batch_size"`
	Solo      []string `json:"solo"`
	Devices   []string `json:"devices"`
	Machine   string   `json:"machine"`
}

func readBenchmark(dir string) (benchmark, error) {
	var b benchmark
	path := filepath.Join(dir, benchmarkFile)
	text, err := readWithin(dir, benchmarkFile, mostTextBytes)
	if err != nil {
		return b, fmt.Errorf("read the scenario: %w", err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return b, fmt.Errorf("read the scenario: %s: %w", path, err)
	}
	if b.Schema != 1 || b.Scenario == "" {
		return b, fmt.Errorf("read the scenario: %s: got schema %d and scenario %q, want schema 1 and a name", path,
			b.Schema, b.Scenario)
	}
	return b, nil
}

// readWithin reads a file in a folder that may be untrusted. It returns an error for a link that leads out of the
// folder.
func readWithin(dir, name string, most int64) ([]byte, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close() // read only
	return regular.ReadIn(root, name, most)
}

// readSettings reads configs/resolved.toml. It returns a map from keys with dots to values.
func readSettings(dir string) (map[string]string, error) {
	path := filepath.Join(dir, resolvedFile)
	text, err := readWithin(dir, resolvedFile, mostSettings)
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	flat, err := runs.Flat(text)
	if err != nil {
		return nil, fmt.Errorf("read settings: %s: %w", path, err)
	}
	return flat, nil
}

// Keys that may differ between runs of one comparison: keys that identify a run, and keys that are compared. A name
// that ends in "." stands for a whole table.
var (
	ownKeys = []string{"experiment.", "balance.policy", "balance.fixed_shares", "profile.gpu_profiles", "train.resume",
		"parallel.master_addr", "parallel.master_port", "parallel.token_file"}
	// A solo run differs in the number of ranks and of steps, and has no balancing.
	soloKeys = append([]string{"balance.", "parallel.", "train.steps", "train.epochs", "device.threads"}, ownKeys...)
)

// comparable returns the settings of a run without the given keys. It adds other properties that must also be equal, so
// that step times can be compared.
func (r *Run) comparable(without []string) map[string]string {
	kept := maps.Clone(r.Settings)
	maps.DeleteFunc(kept, func(key, _ string) bool {
		return slices.ContainsFunc(without, func(name string) bool {
			return key == name || strings.HasSuffix(name, ".") && strings.HasPrefix(key, name)
		})
	})
	kept["machine"], kept["data set trained on"], kept["precision in use"] = r.Machine, r.Dataset, r.Result.Precision
	kept["kind of device"], _, _ = strings.Cut(r.Result.Device, ":")
	return kept
}

// fingerprint returns a text that is equal for equal settings.
func fingerprint(settings map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&b, "%s=%q\n", key, settings[key])
	}
	return b.String()
}

// differences returns the keys whose values differ between the given settings.
func differences(all []map[string]string) []string {
	var keys []string
	for _, settings := range all {
		for key := range settings {
			if !slices.Contains(keys, key) &&
				slices.ContainsFunc(all, func(other map[string]string) bool { return other[key] != settings[key] }) {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}
