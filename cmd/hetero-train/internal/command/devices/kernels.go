package devices

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kernelChoice is a kernel that a device has chosen by timing. The native libraries store the choices
// (engine/device/native/src/choice_file.h).
type kernelChoice struct {
	Device string `json:"device"` // kind of device: the name of the choice file without its suffix
	Op     string `json:"op"`     // key of the choice: versions of the kernels, op and operands
	Kernel string `json:"kernel"`
	Times  string `json:"times"` // times of all candidates or only of the chosen one; without a unit: µs
}

const choicesHeader = "hetero-train choices 1"

// choicesFolder returns the folder of the stored choices, or "" if there is none.
func choicesFolder() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(cache, "hetero-train", "choices")
}

// chosenKernels reads the choices of all devices of this machine. Like the libraries, it ignores files of another
// version, and damaged lines.
func chosenKernels() ([]kernelChoice, error) {
	files, err := filepath.Glob(filepath.Join(choicesFolder(), "*.tsv"))
	if err != nil || choicesFolder() == "" {
		return nil, err
	}
	var list []kernelChoice
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return list, fmt.Errorf("kernels chosen by timing: %w", err)
		}
		header, lines, _ := strings.Cut(string(text), "\n")
		if header != choicesHeader {
			continue
		}
		for line := range strings.Lines(lines) {
			fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
			if len(fields) == 3 {
				list = append(list, kernelChoice{Device: strings.TrimSuffix(filepath.Base(file), ".tsv"), Op: fields[0],
					Kernel: fields[1], Times: fields[2]})
			}
		}
	}
	return list, nil
}

// writeKernels writes one line for each kind of device. The line contains how often each kernel was chosen. Only
// kernels of the CPU have readable names.
func writeKernels(w io.Writer, list []kernelChoice) error {
	counts := map[string]map[string]int{}
	for _, c := range list {
		if counts[c.Device] == nil {
			counts[c.Device] = map[string]int{}
		}
		counts[c.Device][c.Kernel]++
	}
	for i, name := range slices.Sorted(maps.Keys(counts)) {
		of, total := counts[name], 0
		var parts []string
		for _, kernel := range slices.SortedFunc(maps.Keys(of), func(a, b string) int {
			return cmp.Or(of[b]-of[a], strings.Compare(a, b))
		}) {
			parts, total = append(parts, fmt.Sprintf("%d %s", of[kernel], kernel)), total+of[kernel]
		}
		text := strings.Join(parts, ", ")
		if !strings.HasPrefix(name, "cpu_") {
			text = fmt.Sprint(total)
		}
		head := ""
		if i == 0 {
			head = fmt.Sprintf("\nkernels chosen by timing, in %s:\n", choicesFolder())
		}
		if _, err := fmt.Fprintf(w, "%s    %s: %s\n", head, name, text); err != nil {
			return err
		}
	}
	return nil
}
