package prometheus

import (
	"strconv"
	"strings"
)

// contentType is the media type of the text format.
const contentType = "text/plain; version=0.0.4; charset=utf-8"

// text writes metrics in the text format. A family is a metric with all its samples.
type text struct {
	out  []byte
	name string // name of the current family
}

// label is a name and a value of a sample.
type label struct{ name, value string }

// family starts a family. kind is "counter", "gauge" or "histogram".
func (t *text) family(name, kind, help string) {
	t.name = name
	t.out = append(t.out, "# HELP "+name+" "...)
	t.out = append(t.out, escapeHelp.Replace(help)...)
	t.out = append(t.out, "\n# TYPE "+name+" "+kind+"\n"...)
}

// sample writes a sample of the current family.
func (t *text) sample(v float64, labels ...label) { t.suffixed("", v, labels...) }

// suffixed writes a sample. Its name is that of the current family, followed by a suffix such as "_count".
func (t *text) suffixed(suffix string, v float64, labels ...label) {
	t.out = append(append(t.out, t.name...), suffix...)
	for i, l := range labels {
		t.out = append(t.out, ",{"[b2i(i == 0)])
		t.out = append(append(t.out, l.name...), `="`...)
		t.out = append(append(t.out, escapeLabel.Replace(strings.ToValidUTF8(l.value, "\ufffd"))...), '"')
	}
	if len(labels) > 0 {
		t.out = append(t.out, '}')
	}
	t.out = append(t.out, ' ')
	t.out = strconv.AppendFloat(t.out, v, 'g', -1, 64) // Go writes NaN, +Inf and -Inf as the text format requires
	t.out = append(t.out, '\n')
}

func b2i(is bool) int {
	if is {
		return 1
	}
	return 0
}

var (
	escapeHelp  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// bounds are the upper bounds of the buckets of a Histogram, s. Steps of small models take a millisecond, and steps of
// large models on CPUs a minute.
var bounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100}

// Histogram counts durations.
type Histogram struct {
	counts [len(bounds) + 1]int64 // by bucket; the last bucket has no upper bound
	sum    float64                // s
}

// Add counts a duration in seconds.
func (h *Histogram) Add(seconds float64) {
	i := 0
	for i < len(bounds) && seconds > bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += seconds
}

func (h *Histogram) write(t *text) {
	total := int64(0)
	for i, n := range h.counts {
		total += n
		le := "+Inf"
		if i < len(bounds) {
			le = strconv.FormatFloat(bounds[i], 'g', -1, 64)
		}
		t.suffixed("_bucket", float64(total), label{"le", le})
	}
	t.suffixed("_sum", h.sum)
	t.suffixed("_count", float64(total))
}
