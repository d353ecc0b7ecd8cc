package ingest

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// GavelTrace reads a trace of Gavel: one job in each line, with 7 fields that are separated by tabs.
//
//	kind, command, flag of the command for the number of steps, 1 if the command needs a data directory, steps, arrival in
//	seconds, number of GPUs
//
// Later versions of Gavel write 10 fields: kind, command, directory, flag of the command, 1 if the command needs a data
// directory, steps, number of GPUs, weight, deadline, arrival in seconds. Both forms are read; all lines must have the
// same form. Weights and deadlines are ignored.
//
// kinds are those of [ReadGavel]. If they could not be read, kinds is nil; the kinds of the jobs are then not checked,
// and all are -1. A trace does not state priorities and requested CPU cores, memory and network, so these are NaN in
// the result; see [Data.Fill]. The name of a job is its line number.
//
// Arrivals must not decrease. The last line must end with a line feed; otherwise the trace is incomplete.
func GavelTrace(source string, r io.Reader, kinds []scheduler.Kind) ([]scheduler.Job, error) {
	text, err := readAll(source, r)
	if err != nil {
		return nil, err
	}
	var f faults
	index := make(map[string]int, len(kinds))
	for i, k := range kinds {
		index[k.Name] = i
	}
	var jobs []scheduler.Job
	last, fields := 0.0, 0
	for n, line := range lines(text, source, &f) {
		columns := strings.Split(line, "\t")
		if fields == 0 && (len(columns) == 7 || len(columns) == 10) {
			fields = len(columns)
		}
		if len(columns) != fields {
			want := "7 or 10 fields separated by tabs"
			if fields > 0 {
				want = fmt.Sprintf("%d, as in the lines above", fields)
			}
			f.add(source, n, "fields of a job", strconv.Itoa(len(columns)), want)
			continue
		}
		kind, steps, arrival, gpus := columns[0], columns[4], columns[5], columns[6]
		if fields == 10 {
			steps, gpus, arrival = columns[5], columns[6], strings.TrimSpace(columns[9])
		}
		j := scheduler.Job{Name: "line " + strconv.Itoa(n), CPUs: math.NaN(), Memory: math.NaN(), Network: math.NaN(),
			Priority: math.NaN()}
		var known bool
		if j.Kind, known = index[kind]; !known {
			j.Kind = -1
			if kinds != nil {
				f.add(source, n, "kind of job", quote(kind), nearestKind(kind, kinds))
			}
		}
		work, err := strconv.ParseInt(strings.TrimSpace(steps), 10, 53)
		if err != nil || work < 1 {
			f.add(source, n, "steps", quote(steps), fmt.Sprintf("an integer from 1 to %d", int64(1)<<52-1))
		}
		if j.Arrival, err = strconv.ParseFloat(strings.TrimSpace(arrival), 64); err != nil || !(j.Arrival >= 0) ||
			math.IsInf(j.Arrival, 0) {
			f.add(source, n, "arrival", quote(arrival), "a finite number of seconds, at least 0")
		} else if j.Arrival < last {
			f.add(source, n, "arrival", fmt.Sprintf("%v s after %v s in an earlier line", j.Arrival, last),
				"jobs in the order of arrival")
		} else {
			last = j.Arrival
		}
		if j.GPUs, err = strconv.Atoi(strings.TrimSpace(gpus)); err != nil || j.GPUs < 1 || j.GPUs > maxGavelGPUs {
			f.add(source, n, "number of GPUs", quote(gpus), fmt.Sprintf("an integer from 1 to %d", maxGavelGPUs))
			continue
		}
		j.Work = float64(work)
		jobs = append(jobs, j)
	}
	if len(jobs) == 0 && len(f.list) == 0 {
		f.add(source, 0, "jobs", "none", "at least one line")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return jobs, nil
}

func nearestKind(name string, kinds []scheduler.Kind) string {
	best, distance := "", math.MaxInt
	for _, k := range kinds {
		if d := editDistance(name, k.Name); d < distance {
			best, distance = k.Name, d
		}
	}
	if best == "" {
		return "a kind that has speeds, but no kind has speeds"
	}
	return "a kind that has speeds; the nearest is " + quote(best)
}

// Without returns the jobs that are not in the list, which is ascending.
func Without(jobs []scheduler.Job, list []int) []scheduler.Job {
	kept := make([]scheduler.Job, 0, len(jobs))
	for i, j := range jobs {
		if _, found := slices.BinarySearch(list, i); !found {
			kept = append(kept, j)
		}
	}
	return kept
}
