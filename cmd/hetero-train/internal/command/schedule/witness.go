package schedule

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/show"
)

// witness is a policy that records the decisions of another policy about one job.
type witness struct {
	scheduler.Policy
	job     int
	arrived bool
	before  int // number of jobs before it in the queue when it arrived
	free    []pool
	stays   []stayed // stays, which do not contain their ends yet
}

// pool contains the numbers of GPUs of one type.
type pool struct {
	Type      string `json:"type"`
	Free      int    `json:"free"`
	Available int    `json:"available"`
}

// stayed is one stay: the time from a start of the job on some GPUs to its next stop or its end.
type stayed struct {
	GPUs         []string `json:"gpus"`
	From         float64  `json:"from_s"`
	To           float64  `json:"to_s"`
	Ended        string   `json:"ended"` // how the stay ended: "finished", "stopped", "failed" or "unfinished"
	Remaining    float64  `json:"remaining_steps"`
	Queue        int      `json:"queue"` // jobs in the queue, including this job
	Reason       string   `json:"reason"`
	StopReason   string   `json:"stop_reason,omitempty"`
	Alternatives []option `json:"alternatives"` // the first one is the choice of the policy
}

// option is a set of GPUs on which the job could have started, or a type on which it could not.
type option struct {
	Types  string   `json:"types"` // such as "2 volta"
	GPUs   []string `json:"gpus,omitempty"`
	Shares string   `json:"shares_with,omitempty"` // running job that already uses these GPUs
	Speed  any      `json:"speed_steps_per_s"`
	Finish any      `json:"finish_s"` // time at which the job would finish if nothing else changed
	Not    string   `json:"not,omitempty"`
	Chosen bool     `json:"chosen,omitempty"`
}

// Decide implements scheduler.Policy.
func (w *witness) Decide(s *scheduler.State) scheduler.Action {
	if !w.arrived && w.job < s.Arrived {
		w.arrived, w.free = true, pools(s)
		w.before = slices.Index(s.Queue, w.job)
	}
	a := w.Policy.Decide(s)
	if a.Job != w.job {
		return a
	}
	switch a.Verb {
	case scheduler.Start:
		w.stays = append(w.stays, stayed{GPUs: gpuNames(s.Cluster, a.GPUs), From: s.Now, Remaining: s.Remaining[w.job],
			Queue: len(s.Queue), Reason: a.Reason,
			Alternatives: alternatives(s, w.job, a.GPUs)})
	case scheduler.Stop:
		w.stays[len(w.stays)-1].StopReason = a.Reason
	}
	return a
}

// Waits implements scheduler.Waiter.
func (w *witness) Waits(s *scheduler.State, job int) string {
	return scheduler.WhyWaits(w.Policy, s, job)
}

// pools counts, for each type, the available GPUs and the available GPUs without a job.
func pools(s *scheduler.State) []pool {
	out := make([]pool, len(s.Cluster.Types))
	for t := range out {
		out[t].Type = s.Cluster.Types[t].Name
	}
	for g, up := range s.Up {
		if p := &out[s.Cluster.GPUs[g].Type]; up {
			p.Available++
			if len(s.OnGPU[g]) == 0 {
				p.Free++
			}
		}
	}
	return out
}

// alternatives lists the options for the start of a job. The first one is the choice of the policy. Then follow the
// free GPUs of each type, and for each type the fastest running job that could share its GPUs.
func alternatives(s *scheduler.State, job int, chosen []int) []option {
	speed, _ := s.Fit(job, chosen)
	list := []option{placement(s, job, chosen, speed)}
	list[0].Chosen = true
	add := func(gpus []int, speed float64) {
		if !slices.Equal(gpus, chosen) {
			list = append(list, placement(s, job, gpus, speed))
		}
	}
	need := s.Workload.Jobs[job].GPUs
	for t, p := range pools(s) {
		if gpus, speed, ok := s.Place(job, t, nil); ok {
			add(gpus, speed)
			continue
		}
		list = append(list, option{Types: fmt.Sprintf("%d %s", need, p.Type), Not: obstacle(s, job, t, p)})
	}
	for t := range s.Cluster.Types {
		var most float64
		var best []int
		for i := range s.Running {
			gpus := s.Running[i].GPUs
			if s.Cluster.GPUs[gpus[0]].Type != t {
				continue
			}
			if speed, why := s.Fit(job, gpus); why == scheduler.Fits && speed > most {
				most, best = speed, gpus
			}
		}
		if best != nil {
			add(best, most)
		}
	}
	return list
}

// placement returns the option to start a job on GPUs on which it fits.
func placement(s *scheduler.State, job int, gpus []int, speed float64) option {
	o := option{Types: typesOf(s.Cluster, gpus), GPUs: gpuNames(s.Cluster, gpus), Speed: show.Number(speed)}
	if on := s.OnGPU[gpus[0]]; len(on) > 0 {
		o.Shares = s.Workload.Jobs[on[0]].Name
	}
	finish := s.Now + s.Remaining[job]/speed
	if j := s.Workload.Jobs[job]; s.Remaining[job] < j.Work { // the job continues from a checkpoint
		finish += s.Workload.Kinds[j.Kind].Load
	}
	o.Finish = show.Number(finish)
	return o
}

// obstacle returns the reason why a job cannot start on free GPUs of a type.
func obstacle(s *scheduler.State, job, typ int, gpus pool) string {
	j := &s.Workload.Jobs[job]
	need, t := s.Workload.Kinds[j.Kind].GPUMemory, &s.Cluster.Types[typ]
	switch {
	case need > t.Memory:
		return fmt.Sprintf("needs %.4g GiB of memory on each GPU, but these have %.4g GiB", need/(1<<30),
			t.Memory/(1<<30))
	case !(s.Speeds.Alone(j.Kind, typ, j.GPUs, false) > 0 || s.Speeds.Alone(j.Kind, typ, j.GPUs, true) > 0):
		return "this kind of job has no speed there"
	case gpus.Available < j.GPUs:
		return fmt.Sprintf("%d free of %d available", gpus.Free, gpus.Available)
	case gpus.Free < j.GPUs:
		return fmt.Sprintf("%d free", gpus.Free)
	}
	const hosts = "their machines have too few free CPU cores or too little memory"
	switch packed, spread := s.Speeds.Alone(j.Kind, typ, j.GPUs, false), s.Speeds.Alone(j.Kind, typ, j.GPUs, true); {
	case j.GPUs == 1 || packed > 0 && spread > 0:
		return fmt.Sprintf("%d free, but %s", gpus.Free, hosts)
	case spread > 0:
		return fmt.Sprintf("%d free, but this kind of job runs only over several machines, and they are on one, or %s",
			gpus.Free, hosts)
	}
	return fmt.Sprintf("%d free, but this kind of job runs only within one machine, and they are on several, or %s",
		gpus.Free, hosts)
}

func gpuNames(c *scheduler.Cluster, gpus []int) []string {
	names := make([]string, len(gpus))
	for i, g := range gpus {
		names[i] = c.GPUs[g].Name
	}
	return names
}

// typesOf counts GPUs by type, for example "2 volta + 1 turing".
func typesOf(c *scheduler.Cluster, gpus []int) string {
	counts := make([]int, len(c.Types))
	for _, g := range gpus {
		counts[c.GPUs[g].Type]++
	}
	var parts []string
	for t, n := range counts {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, c.Types[t].Name))
		}
	}
	return strings.Join(parts, " + ")
}
