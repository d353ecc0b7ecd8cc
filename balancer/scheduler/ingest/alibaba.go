package ingest

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Iterations contains the times of iterations of one job with several workers, from cluster-trace-gpu-v2020 of Alibaba.
// The workers wait for each other in each iteration, so the slowest worker determines the speed of the job.
//
// The files contain no arrivals, no requested resources and no types of GPUs, so they do not describe a workload. They
// show how much equal workers of a busy cluster differ ([Iterations.Summary], [Iterations.Slowdowns]). Times are
// relative: the files contain them divided by an unknown number.
type Iterations struct {
	Workers []WorkerTimes
}

// WorkerTimes contains the times of one worker.
type WorkerTimes struct {
	Worker int
	GPU    float64   // fraction of a GPU that the worker has
	Number []int     // number of each iteration; never decreasing, and the last number can occur twice
	Time   []float64 // time of each iteration, in an unknown unit
}

// alibabaHeader is the first line of the files. The first column is the number of the row.
const alibabaHeader = ",worker,gpu,time,batch_time_norm"

// ReadAlibaba reads files in the format of job_1_norm.csv. The columns are the number of the row, the worker, the
// percentage of a GPU, the number of the iteration, and the normalised time of the iteration. It reports all faults: a
// different header, rows that are missing or out of order, iterations that are out of order, and times that are not
// above 0.
func ReadAlibaba(source string, r io.Reader) (*Iterations, error) {
	text, err := readAll(source, r)
	if err != nil {
		return nil, err
	}
	var f faults
	out := new(Iterations)
	first, next := true, 0
	for n, line := range lines(text, source, &f) {
		if first {
			first = false
			if strings.ReplaceAll(line, " ", "") != alibabaHeader {
				f.add(source, n, "header", quote(line), alibabaHeader)
				break
			}
			continue
		}
		fields := strings.Split(line, ",")
		if len(fields) != 5 {
			f.add(source, n, "fields", strconv.Itoa(len(fields)), "5: "+alibabaHeader)
			continue
		}
		row, err := strconv.Atoi(strings.TrimSpace(fields[0]))
		if err != nil || row != next {
			f.add(source, n, "number of the row", quote(fields[0]),
				fmt.Sprintf("%d: rows are missing or out of order", next))
			next = row
		}
		next++
		worker, errWorker := strconv.ParseUint(strings.TrimSpace(fields[1]), 10, 20)
		gpu, errGPU := strconv.ParseFloat(strings.TrimSpace(fields[2]), 64)
		number, errNumber := strconv.ParseUint(strings.TrimSpace(fields[3]), 10, 40)
		time, errTime := strconv.ParseFloat(strings.TrimSpace(fields[4]), 64)
		switch {
		case errWorker != nil:
			f.add(source, n, "worker", quote(fields[1]), "an integer from 0 to 1048575")
		case errGPU != nil || !(gpu > 0 && gpu <= 1e4):
			f.add(source, n, "gpu", quote(fields[2]), "the percentage of a GPU, above 0 and at most 10000")
		case errNumber != nil:
			f.add(source, n, "time", quote(fields[3]), "the number of an iteration, an integer of at least 0")
		case errTime != nil || !(time > 0) || math.IsInf(time, 0):
			f.add(source, n, "batch_time_norm", quote(fields[4]), "a finite number above 0")
		default:
			out.add(source, n, &f, int(worker), gpu/100, int(number), time)
		}
	}
	if len(out.Workers) == 0 && len(f.list) == 0 {
		f.add(source, 0, "rows", "none", "a header and at least one row")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	slices.SortFunc(out.Workers, func(a, b WorkerTimes) int { return a.Worker - b.Worker })
	return out, nil
}

func (it *Iterations) add(source string, line int, f *faults, worker int, gpu float64, number int, time float64) {
	i := slices.IndexFunc(it.Workers, func(w WorkerTimes) bool { return w.Worker == worker })
	if i < 0 {
		const most = 1000 // the search above is linear
		if len(it.Workers) == most {
			f.add(source, line, "workers", "more", fmt.Sprintf("at most %d", most))
			return
		}
		i = len(it.Workers)
		it.Workers = append(it.Workers, WorkerTimes{Worker: worker, GPU: gpu})
	}
	w := &it.Workers[i]
	if n := len(w.Number); n > 0 && number < w.Number[n-1] {
		f.add(source, line, fmt.Sprintf("time of worker %d", worker), fmt.Sprintf("%d after %d", number, w.Number[n-1]),
			"iteration numbers that never decrease")
		return
	}
	if gpu != w.GPU {
		f.add(source, line, fmt.Sprintf("gpu of worker %d", worker), fmt.Sprintf("%v %%", gpu*100),
			fmt.Sprintf("%v %%, as in its earlier rows", w.GPU*100))
		return
	}
	w.Number, w.Time = append(w.Number, number), append(w.Time, time)
}

// Summary describes how much the times of the workers of a job differ.
type Summary struct {
	Workers    int
	Iterations int     // iterations that all workers have
	Spread     float64 // largest median of a worker, divided by the smallest: lasting differences
	Jitter     float64 // median over the workers of (deviation of a worker's times / their mean)
	Barrier    float64 // mean over the iterations of (slowest worker / mean of the workers): the cost of waiting
	Levels     float64 // Barrier if the time of each worker were always its median
	P50        float64 // quantiles of Slowdowns
	P90        float64
	P99        float64
	Most       float64
}

// Summary computes the summary.
func (it *Iterations) Summary() Summary {
	s := Summary{Workers: len(it.Workers), Spread: 1, Barrier: math.NaN(), Levels: math.NaN()}
	var medians, jitters []float64
	for _, w := range it.Workers {
		medians = append(medians, medianOf(w.Time))
		mean, square := 0.0, 0.0
		for _, t := range w.Time {
			mean += t / float64(len(w.Time))
		}
		for _, t := range w.Time {
			square += (t/mean - 1) * (t/mean - 1) / float64(len(w.Time))
		}
		jitters = append(jitters, math.Sqrt(square))
	}
	if len(medians) > 0 {
		s.Spread = slices.Max(medians) / slices.Min(medians)
		s.Jitter = medianOf(jitters)
		sum := 0.0
		for _, m := range medians {
			sum += m / float64(len(medians))
		}
		s.Levels = slices.Max(medians) / sum
	}
	s.Iterations, s.Barrier = it.barrier()
	if list := it.Slowdowns(); len(list) > 0 {
		at := func(p float64) float64 { return list[int(p*float64(len(list)-1))] }
		s.P50, s.P90, s.P99, s.Most = at(0.5), at(0.9), at(0.99), list[len(list)-1]
	}
	return s
}

// barrier returns the number of iterations iterations that all workers have, and the mean of (slowest / mean) over
// them.
func (it *Iterations) barrier() (count int, mean float64) {
	if len(it.Workers) == 0 {
		return 0, math.NaN()
	}
	sum := 0.0
	at := make([]int, len(it.Workers)) // by worker: place in its times
	for first, number := range it.Workers[0].Number {
		if first > 0 && number == it.Workers[0].Number[first-1] {
			continue
		}
		slowest, total, all := 0.0, 0.0, true
		at[0] = first
		for i := range it.Workers {
			w := &it.Workers[i]
			for at[i] < len(w.Number) && w.Number[at[i]] < number {
				at[i]++
			}
			if at[i] == len(w.Number) || w.Number[at[i]] != number {
				all = false
				break
			}
			slowest, total = max(slowest, w.Time[at[i]]), total+w.Time[at[i]]/float64(len(it.Workers))
		}
		if all {
			count++
			sum += slowest / total
		}
	}
	return count, sum / float64(count)
}

// Slowdowns returns the times of all iterations, each divided by the median of its worker, ascending. This is the
// distribution of slowdowns by other programs on the machines. A simulation draws from it with a random index.
func (it *Iterations) Slowdowns() []float64 {
	var list []float64
	for _, w := range it.Workers {
		m := medianOf(w.Time)
		for _, t := range w.Time {
			list = append(list, t/m)
		}
	}
	slices.Sort(list)
	return list
}

func medianOf(list []float64) float64 {
	sorted := slices.Sorted(slices.Values(list))
	n := len(sorted)
	return sorted[(n-1)/2]/2 + sorted[n/2]/2
}
