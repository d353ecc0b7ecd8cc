package inference

import (
	"fmt"
	"math"
	"sync"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/tokens"
)

// overlap counts the training samples that an evaluation reads. It knows the hashes of some training samples, which the
// checkpoint contains.
type overlap struct {
	trained int64 // number of training samples

	mu    sync.Mutex
	known map[uint64]bool // key: hash of a training sample; value: the evaluation has read this sample
}

// watchOverlap begins to count training samples among the samples of split that this process reads from now on. It
// returns nil if the checkpoint contains no hashes, or if the user evaluates the training samples.
func (m *savedModel) watchOverlap(split string) *overlap {
	trained := assembly.PrintOf(&m.checkpoint.State).Train
	if trained == nil || split == splitTrain {
		return nil
	}
	o := &overlap{trained: trained.Units, known: map[uint64]bool{}}
	for sum := range trained.Known() {
		o.known[sum] = false
	}
	if len(o.known) == 0 {
		return nil
	}
	if texts, ok := m.evaluatedTexts().(*tokens.Classification); ok {
		for i := range texts.Len() {
			o.read(texts.Sum(i))
		}
	}
	m.run.Data.Watch.Send(func(_ int, sum uint64) { o.read(sum) })
	return o
}

// evaluatedTexts returns the text samples for evaluation, or nil for images.
func (m *savedModel) evaluatedTexts() any {
	if m.run.Data.Tokens == nil {
		return nil
	}
	return data.Unskipped(m.run.Data.Tokens.Eval)
}

// read records that the evaluation reads a sample. It is safe for concurrent use.
func (o *overlap) read(sum uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, trained := o.known[sum]; trained {
		o.known[sum] = true
	}
}

// note describes the overlap for a reader of the results. It returns "" if no training sample is among the n evaluated
// samples.
func (o *overlap) note(n int) string {
	if o == nil {
		return ""
	}
	found := 0
	for _, read := range o.known {
		if read {
			found++
		}
	}
	if found == 0 {
		return ""
	}
	about := math.Round(float64(found) / float64(len(o.known)) * float64(o.trained))
	return fmt.Sprintf("about %.0f of the %d evaluated samples have the content of training samples (%d of %d compared training samples are among them): figures of such samples are not figures of held-out data",
		min(about, float64(n)), n, found, len(o.known))
}

// joined joins two notes, each of which may be "".
func joined(a, b string) string {
	if a != "" && b != "" {
		a += "; "
	}
	return a + b
}
