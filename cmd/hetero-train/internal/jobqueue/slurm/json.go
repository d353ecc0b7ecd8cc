package slurm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// number is decoded from one of Slurm's two notations for numbers. An unset number is NaN, and an infinite number is
// +Inf.
type number float64

func (n *number) UnmarshalJSON(text []byte) error {
	var object struct {
		Set, Infinite bool
		Number        float64
	}
	switch {
	case string(text) == "null":
		*n = number(math.NaN())
	case text[0] == '{':
		if err := json.Unmarshal(text, &object); err != nil {
			return err
		}
		*n = number(object.Number)
		if object.Infinite {
			*n = number(math.Inf(1))
		} else if !object.Set {
			*n = number(math.NaN())
		}
	default:
		var v float64
		if err := json.Unmarshal(text, &v); err != nil {
			return err
		}
		*n = number(v)
	}
	return nil
}

// or returns the number, or fallback if the number is not set.
func (n number) or(fallback float64) float64 {
	if math.IsNaN(float64(n)) {
		return fallback
	}
	return float64(n)
}

// words is decoded from a comma-separated string or from a list of strings.
type words []string

func (w *words) UnmarshalJSON(text []byte) error {
	*w = nil
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]string)(w))
	}
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			*w = append(*w, part)
		}
	}
	return nil
}

type job struct {
	ID            int64    `json:"job_id"`
	ArrayTasks    string   `json:"array_task_string"`
	HetID         number   `json:"het_job_id"`
	Name          string   `json:"name"`
	State         words    `json:"job_state"`
	StateReason   string   `json:"state_reason"`
	Comment       string   `json:"comment"`
	Partition     words    `json:"partition"`
	Features      string   `json:"features"`
	Submit        number   `json:"submit_time"`
	Start         number   `json:"start_time"`
	TimeLimit     number   `json:"time_limit"` // minutes
	Priority      number   `json:"priority"`
	NodeCount     number   `json:"node_count"`
	Tasks         number   `json:"tasks"`
	Nodes         string   `json:"nodes"`
	RequiredNodes words    `json:"required_nodes"`
	Detail        []string `json:"gres_detail"` // allocated GPUs on each node
	Requested     string   `json:"tres_req_str"`
	TRESPerJob    string   `json:"tres_per_job"`
	TRESPerNode   string   `json:"tres_per_node"`
	TRESPerTask   string   `json:"tres_per_task"`
	TRESPerSocket string   `json:"tres_per_socket"`
}

type node struct {
	Name        string `json:"name"`
	State       words  `json:"state"`
	StateFlags  words  `json:"state_flags"` // data parser v0.0.38
	Reason      string `json:"reason"`
	Features    words  `json:"active_features"`
	Partitions  words  `json:"partitions"`
	GRES        string `json:"gres"`
	GRESUsed    string `json:"gres_used"`
	CPUs        number `json:"cpus"`
	AllocCPUs   number `json:"alloc_cpus"`
	RealMemory  number `json:"real_memory"`  // MB
	AllocMemory number `json:"alloc_memory"` // MB
}

type answer struct {
	Meta struct {
		Slurm struct {
			Release string `json:"release"`
		} `json:"Slurm"`
	} `json:"meta"`
	Errors []struct {
		Error       string `json:"error"`
		Description string `json:"description"`
	} `json:"errors"`
	Jobs  []job  `json:"jobs"`
	Nodes []node `json:"nodes"`
}

// faults returns the errors that Slurm reports in its output.
func (a *answer) faults() string {
	text := ""
	for _, e := range a.Errors {
		text += ": " + cmp.Or(e.Description, e.Error)
	}
	return text
}

func parse(name string, text []byte) (answer, error) {
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%s: %w: got %d bytes, want JSON from Slurm: %w", name, ErrOutput, len(text), err)
	}
	if len(a.Errors) > 0 {
		return a, fmt.Errorf("%s: Slurm reports an error%s", name, a.faults())
	}
	return a, nil
}

// mostGPUs is the largest plausible number of GPUs of a node or a job.
const mostGPUs = 1 << 20

// gpus are the GPUs of one type in a request or on a node.
type gpus struct {
	kind  string
	count int
}

// index is the list of GPU numbers in gres_used, for example "(IDX:0-2)" or "(S:0-1)".
var index = regexp.MustCompile(`\([^)]*\)`)

// parseGRES returns the GPUs in a text in one of Slurm's notations: "gpu:v100:4(S:0-1),shard:8", "gres:gpu:2",
// "gres/gpu:v100=4", "gpu". It ignores other resources.
func parseGRES(text string) ([]gpus, error) {
	var all []gpus
	for _, part := range strings.Split(index.ReplaceAllString(text, ""), ",") {
		part = strings.TrimSpace(part)
		part = strings.TrimPrefix(strings.TrimPrefix(part, "gres:"), "gres/")
		fields := strings.FieldsFunc(part, func(r rune) bool { return r == ':' || r == '=' })
		if len(fields) == 0 || fields[0] != "gpu" {
			continue
		}
		g := gpus{count: 1}
		fields = fields[1:]
		if n := len(fields); n > 0 {
			if count, err := strconv.Atoi(fields[n-1]); err == nil {
				g.count, fields = count, fields[:n-1]
			}
		}
		if len(fields) > 0 {
			g.kind, fields = fields[0], fields[1:]
		}
		if len(fields) > 0 || g.count < 0 || g.count > mostGPUs {
			return nil, fmt.Errorf("GPUs %q: want gpu, gpu:COUNT or gpu:TYPE:COUNT, at most %d", part, mostGPUs)
		}
		all = append(all, g)
	}
	return all, nil
}

// tresMemory returns the value of mem, in bytes, in a text such as "cpu=1,mem=62.50G,node=1". It returns 0 if the text
// has no mem.
func tresMemory(text string) (float64, error) {
	v, ok := tres(text, "mem")
	if !ok {
		return 0, nil
	}
	scale := 1.0 * (1 << 20) // Slurm's default unit is MB
	if i := strings.IndexByte("KMGTP", v[len(v)-1]); i >= 0 {
		scale, v = math.Pow(1024, float64(i+1)), v[:len(v)-1]
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil || !(n >= 0) || math.IsInf(n, 0) {
		return 0, fmt.Errorf("memory %q: want a number with K, M, G, T or P", v)
	}
	return n * scale, nil
}

func tres(text, key string) (string, bool) {
	for _, part := range strings.Split(text, ",") {
		if k, v, ok := strings.Cut(part, "="); ok && k == key && v != "" {
			return v, true
		}
	}
	return "", false
}

// ErrOutput is wrapped by errors about the output of Slurm's programs.
var ErrOutput = errors.New("unexpected output")
