package scheduler

// shape is all that determines where a job fits and how fast it runs there.
type shape struct {
	kind, gpus   int
	cpus, memory float64
}

func (j *Job) shape() shape { return shape{j.Kind, j.GPUs, j.CPUs, j.Memory} }

// shapes numbers the shapes of the jobs of a workload.
type shapes struct {
	of    []int // by job: its shape
	first []int // by shape: the first job that has it
}

func (v *shapes) reset(w *Workload) {
	v.of, v.first = make([]int, len(w.Jobs)), v.first[:0]
	known := map[shape]int{}
	for i := range w.Jobs {
		key := w.Jobs[i].shape()
		n, ok := known[key]
		if !ok {
			n = len(v.first)
			known[key] = n
			v.first = append(v.first, i)
		}
		v.of[i] = n
	}
}

// HoldsAll is [Holds] for all jobs of a workload. It returns the error of the first job that does not fit.
func HoldsAll(c *Cluster, w *Workload, s Speeds) error {
	fit := map[shape]bool{}
	for i := range w.Jobs {
		key := w.Jobs[i].shape()
		if fit[key] {
			continue
		}
		if err := Holds(c, w, s, i); err != nil {
			return err
		}
		fit[key] = true
	}
	return nil
}
