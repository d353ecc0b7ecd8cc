package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// The kernel requires a quota of at least 1 ms of CPU time, in a period of 1 ms to 1 s.
const (
	periodMicros   = 10_000 // short, so that a rank pauses for milliseconds at a time
	minQuotaMicros = 1_000
	maxPeriod      = 1_000_000
)

// quota is the CPU quota of a control group.
type quota struct {
	folder  string
	v2      bool
	cpus    float64           // original quota in CPUs
	restore map[string]string // original contents of the files by name
	order   []string          // order in which the files must be written
}

const (
	fileV2       = "cpu.max" // for example "5000 10000"
	fileV1Period = "cpu.cfs_period_us"
	fileV1Quota  = "cpu.cfs_quota_us"
)

// openQuota reads the quota of a group. It writes the same values again to check that the quota can be changed.
func openQuota(folder string) (*quota, error) {
	q := &quota{folder: folder, restore: map[string]string{}, order: []string{fileV1Period, fileV1Quota}}
	if _, err := os.Stat(filepath.Join(folder, fileV2)); err == nil {
		q.v2, q.order = true, []string{fileV2}
	}
	for _, name := range q.order {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, fmt.Errorf("control group: %w", err)
		}
		q.restore[name] = strings.TrimSpace(string(text))
	}
	micros, period := q.restore[fileV1Quota], q.restore[fileV1Period]
	if q.v2 {
		micros, period, _ = strings.Cut(q.restore[fileV2], " ")
	}
	m, err1 := strconv.ParseFloat(micros, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || !(m > 0 && p > 0) {
		return nil, fmt.Errorf("control group %s: got a CPU quota of %q in %q µs, want two positive numbers", folder,
			micros, period)
	}
	q.cpus = m / p
	return q, q.close()
}

// set limits the group to the given number of CPUs.
func (q *quota) set(cpus float64) error {
	micros, period := quotaOf(cpus)
	texts := map[string]string{fileV2: fmt.Sprintf("%d %d", micros, period),
		fileV1Period: strconv.FormatInt(period, 10), fileV1Quota: strconv.FormatInt(micros, 10)}
	return q.write(texts)
}

// close restores the original quota.
func (q *quota) close() error { return q.write(q.restore) }

func (q *quota) write(texts map[string]string) error {
	for _, name := range q.order {
		f, err := os.OpenFile(filepath.Join(q.folder, name), os.O_WRONLY|os.O_TRUNC, 0) // never creates the file
		if err != nil {
			return fmt.Errorf("control group: %w", err)
		}
		_, err = f.WriteString(texts[name])
		if closing := f.Close(); err == nil {
			err = closing
		}
		if err != nil {
			return fmt.Errorf("control group: %q: %w", texts[name], err)
		}
	}
	return nil
}

// quotaOf converts a number of CPUs to CPU time and period, in microseconds. For small numbers it uses a longer
// period, because the kernel requires a minimum CPU time.
func quotaOf(cpus float64) (micros, period int64) {
	period = periodMicros
	if cpus*periodMicros < minQuotaMicros {
		period = min(int64(minQuotaMicros/cpus), maxPeriod)
	}
	return max(int64(cpus*float64(period)+0.5), minQuotaMicros), period
}
