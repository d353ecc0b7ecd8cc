package kubernetes

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The parts of the API objects that this package reads.

type meta struct {
	Name            string            `json:"name"`
	Namespace       string            `json:"namespace"`
	UID             string            `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Created         time.Time         `json:"creationTimestamp"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
	Owners          []struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		Controller bool   `json:"controller"`
	} `json:"ownerReferences"`
}

type page[T any] struct {
	Metadata struct {
		Continue string `json:"continue"`
	} `json:"metadata"`
	Items []T `json:"items"`
}

type node struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Unschedulable bool    `json:"unschedulable"`
		Taints        []taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		Allocatable map[string]string `json:"allocatable"`
		Conditions  []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
			Reason string `json:"reason"`
		} `json:"conditions"`
	} `json:"status"`
}

type taint struct {
	Key    string `json:"key"`
	Value  string `json:"value"`
	Effect string `json:"effect"`
}

type podSpec struct {
	NodeName     string            `json:"nodeName"`
	NodeSelector map[string]string `json:"nodeSelector"`
	Affinity     *struct {
		NodeAffinity *struct {
			Required *struct{} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		} `json:"nodeAffinity"`
		PodAffinity *struct {
			Required []struct{} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		} `json:"podAffinity"`
		PodAntiAffinity *struct {
			Required []struct{} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
		} `json:"podAntiAffinity"`
	} `json:"affinity"`
	Tolerations []struct {
		Key      string `json:"key"`
		Operator string `json:"operator"`
		Value    string `json:"value"`
		Effect   string `json:"effect"`
	} `json:"tolerations"`
	ActiveDeadlineSeconds *float64    `json:"activeDeadlineSeconds"`
	Priority              *float64    `json:"priority"`
	Containers            []container `json:"containers"`
	InitContainers        []container `json:"initContainers"`
}

type container struct {
	Resources struct {
		Requests map[string]string `json:"requests"`
		Limits   map[string]string `json:"limits"`
	} `json:"resources"`
}

type pod struct {
	Metadata meta    `json:"metadata"`
	Spec     podSpec `json:"spec"`
	Status   struct {
		Phase     string     `json:"phase"`
		StartTime *time.Time `json:"startTime"`
	} `json:"status"`
}

type job struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Suspend               bool     `json:"suspend"`
		ManagedBy             string   `json:"managedBy"`
		Parallelism           *int     `json:"parallelism"`
		Completions           *int     `json:"completions"`
		ActiveDeadlineSeconds *float64 `json:"activeDeadlineSeconds"`
		Template              struct {
			Spec podSpec `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
	Status struct {
		CompletionTime *time.Time `json:"completionTime"`
	} `json:"status"`
}

// gpuResources are the resource names of whole GPUs, as device plug-ins define them.
var gpuResources = [...]string{"nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe"}

// demand contains the resources that a pod requests.
type demand struct {
	cpus   float64 // in cores
	memory float64 // in bytes
	gpus   int
	of     [4]int // gpus, by resource in gpuResources
}

// plus adds the demand of a container. The parameter combine is the sum, or the maximum for containers that run one
// after the other.
func (d demand) plus(c demand, combine func(a, b float64) float64) demand {
	d.cpus, d.memory, d.gpus = combine(d.cpus, c.cpus), combine(d.memory, c.memory), 0
	for i := range d.of {
		d.of[i] = int(combine(float64(d.of[i]), float64(c.of[i])))
		d.gpus += d.of[i]
	}
	return d
}

// requested returns the demand of a pod: the sum over its containers. An init container, which runs before the others,
// has an effect only if it requests more than the sum.
func (s *podSpec) requested() (demand, error) {
	var sum demand
	for _, c := range s.Containers {
		d, err := c.requested()
		if err != nil {
			return sum, err
		}
		sum = sum.plus(d, func(a, b float64) float64 { return a + b })
	}
	for _, c := range s.InitContainers {
		d, err := c.requested()
		if err != nil {
			return sum, err
		}
		sum = sum.plus(d, math.Max)
	}
	return sum, nil
}

func (c *container) requested() (demand, error) {
	of := func(name string) (float64, error) { // without a request, the limit is the request
		text, ok := c.Resources.Requests[name]
		if !ok {
			text, ok = c.Resources.Limits[name]
		}
		if !ok {
			return 0, nil
		}
		v, err := quantity(text)
		if err != nil {
			return 0, fmt.Errorf("request of %s: %w", name, err)
		}
		return v, nil
	}
	var d demand
	var err error
	if d.cpus, err = of("cpu"); err != nil {
		return d, err
	}
	if d.memory, err = of("memory"); err != nil {
		return d, err
	}
	for i, name := range gpuResources {
		n, err := of(name)
		if err != nil {
			return d, err
		}
		if n > mostGPUs {
			return d, fmt.Errorf("request of %s: got %v, want at most %d", name, n, mostGPUs)
		}
		d.of[i] = int(n)
		d.gpus += int(n)
	}
	return d, nil
}

// mostGPUs is the largest plausible number of GPUs of a pod or a node.
const mostGPUs = 1 << 20

// suffixes of Kubernetes' quantities.
var suffixes = map[string]float64{"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
	"P": 1e15, "E": 1e18,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60}

// quantity parses a number such as "250m", "16Gi" or "1e3".
func quantity(text string) (float64, error) {
	number := strings.TrimRight(text, "numkKMGTPEi")
	scale, ok := suffixes[text[len(number):]]
	v, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(v >= 0) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("got %q, want a quantity such as 2, 250m or 16Gi", text)
	}
	return v * scale, nil
}

type quota struct {
	Metadata meta `json:"metadata"`
	Status   struct {
		Hard map[string]string `json:"hard"`
		Used map[string]string `json:"used"`
	} `json:"status"`
}
