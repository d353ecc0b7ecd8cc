package cuda

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/device"
)

// VisibleVariable is the environment variable that selects and orders the GPUs of a process.
const VisibleVariable = "CUDA_VISIBLE_DEVICES"

// Visible is the parsed variable.
type Visible struct {
	Set   bool     // the variable exists
	Names []string // numbers, "GPU-…" and "MIG-…", up to the first invalid name; CUDA hides all later ones
	Rest  []string // the first invalid name and all later ones
}

// ReadVisible parses the variable's text.
func ReadVisible(text string, set bool) Visible {
	v := Visible{Set: set}
	if !set || strings.TrimSpace(text) == "" {
		return v
	}
	for _, name := range strings.Split(text, ",") {
		name = strings.TrimSpace(name)
		if len(v.Rest) > 0 || !isName(name) {
			v.Rest = append(v.Rest, name)
			continue
		}
		v.Names = append(v.Names, name)
	}
	return v
}

// isName reports whether text names a GPU. Any other text ends the list: "-1", "NoDevFiles", a word.
func isName(text string) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= 0 || len(text) > 4 && (strings.HasPrefix(text, "GPU-") || strings.HasPrefix(text, "MIG-"))
}

func readEnvironment() Visible { return ReadVisible(os.LookupEnv(VisibleVariable)) }

// Slices returns the number of MIG slices in the list. A process sees only the first.
func (v Visible) Slices() int {
	n := 0
	for _, name := range v.Names {
		if strings.HasPrefix(name, "MIG-") {
			n++
		}
	}
	return n
}

// Of returns the value of the variable for process number local of several processes; "" if the value need not change
// for this process. It assigns one slice of a GPU to each process.
func (v Visible) Of(local int) string {
	if v.Slices() < 2 || local >= len(v.Names) {
		return ""
	}
	return v.Names[local]
}

func (v Visible) String() string {
	return fmt.Sprintf("%s=%q", VisibleVariable, strings.Join(append(slices.Clone(v.Names), v.Rest...), ","))
}

// hidden returns an error if the list hides all GPUs, or names a GPU twice.
func (v Visible) hidden() error {
	if v.Set && len(v.Names) == 0 {
		if len(v.Rest) > 0 && v.Rest[0] != "-1" {
			return fmt.Errorf("%w: cuda: %v hides all GPUs: %q is not a number, GPU-… or MIG-…", device.ErrUnavailable,
				v, v.Rest[0])
		}
		return device.AbsentError(fmt.Sprintf("cuda: %v hides all GPUs", v))
	}
	for i, name := range v.Names {
		if slices.Contains(v.Names[:i], name) {
			return fmt.Errorf("%w: cuda: %v names %s twice, want each GPU once", device.ErrUnavailable, v, name)
		}
	}
	return nil
}

// check returns an error if the list has more GPUs than count, the number of GPUs that the driver shows.
func (v Visible) check(count int) error {
	want := len(v.Names)
	if n := v.Slices(); n > 0 {
		want -= n - 1
	}
	if !v.Set || count >= want && len(v.Rest) == 0 {
		return nil
	}
	if count >= want && v.Rest[0] == "-1" { // NVIDIA documents -1 as the end of a list
		return nil
	}
	culprit := ""
	switch {
	case count >= want:
		culprit = fmt.Sprintf(": there is no GPU %q, and CUDA hides all entries after it", v.Rest[0])
	case v.Slices() == 0:
		culprit = fmt.Sprintf(": there is no GPU %q, and CUDA hides all entries after it", v.Names[count])
	}
	return fmt.Errorf("%w: cuda: %v names %d GPUs, the driver shows %d%s", device.ErrUnavailable, v,
		len(v.Names)+len(v.Rest), count, culprit)
}
