package ingest

import (
	"strings"
	"testing"
)

// A job can state its own estimate, or the error of a random estimate, but not both.
func TestEstimatesOfJobs(t *testing.T) {
	read := func(jobs string) (*Data, error) {
		return Read(Source{Name: "a.toml", Format: TOML, Reader: strings.NewReader(tomlText)},
			Source{Name: "jobs.csv", Format: CSV, Table: Jobs, Reader: strings.NewReader(
				"name,kind,arrival,work,gpus,estimate,estimate_error\n" + jobs)})
	}
	d, err := read("x,ResNet,1 d,10,1,25,\ny,ResNet,1 d,10,1,,0.5\nz,ResNet,1 d,10,1,,\n")
	if err != nil {
		t.Fatal(err)
	}
	jobs := d.Workload.Jobs[len(d.Workload.Jobs)-3:]
	for i, want := range [][2]float64{{25, 0}, {0, 0.5}, {0, 0}} {
		if jobs[i].Estimate != want[0] || jobs[i].Error != want[1] {
			t.Errorf("job %s: got an estimate of %v and an error of %v, want %v", jobs[i].Name, jobs[i].Estimate,
				jobs[i].Error, want)
		}
	}
	for cells, want := range map[string]string{"25,0.5": "both estimate and estimate_error", "0,": "estimate",
		",0": "estimate_error", ",6": "estimate_error", "-1,": "estimate"} {
		if _, err := read("x,ResNet,1 d,10,1," + cells + "\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("cells %q: got error %v, want %q", cells, err, want)
		}
	}
}
