package assembly

import (
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Names of the parts that a training run adds to the memory account of the replica.
const (
	TrainBatches = "training batches"
	EvalBatches  = "evaluation batches"
	ReadAhead    = "encoded samples"
	DataCache    = "decoded images"
)

// HostMemory describes the memory of this process: its limit, and the memory that a training run needs apart from the
// replica.
func (r *Run) HostMemory() *replica.Host {
	h := &replica.Host{Limit: r.Rank.HostLimit(), Program: r.Rank.MeasureProgram}
	if t := r.Rank.Team; h.Limit.Ranks > 1 && t != nil && t.Group != nil {
		h.Pool = t.Group.Members()[t.Place.Rank].Host + " " + h.Limit.Source
	}
	if r.Loading.Samples == nil { // the command opens no training loader
		return h
	}
	h.Copies = r.Rank.Team.Leads()
	h.AddressesLeft = r.Rank.AddressesLeft
	h.Parts = r.dataParts
	h.Optional = []memory.Part{{Name: DataCache, Bytes: r.Data.CachedBytes()}}
	return h
}

// dataParts returns the memory for data if this rank's share of a micro-batch has this number of samples.
func (r *Run) dataParts(share int) []memory.Part {
	loaders := []struct {
		name    string
		options data.Options
	}{{TrainBatches, r.Loading}}
	if r.Unopened || r.Data.HasEval() {
		loaders = append(loaders, struct {
			name    string
			options data.Options
		}{EvalBatches, r.Evaluating()})
	}
	var parts []memory.Part
	for _, l := range loaders {
		samples := 0
		if !r.Unopened {
			samples = l.options.Samples.Len()
		}
		if bytes, err := l.options.MemoryBytes(share, samples); err == nil { // NewLoader will return the error
			parts = append(parts, memory.Part{Name: l.name, Bytes: bytes})
		}
	}
	return append(parts, memory.Part{Name: ReadAhead, Bytes: r.Data.AheadBytes()})
}

// GrantCache lets the data set cache decoded images in the memory that remains for them.
func (r *Run) GrantCache() {
	for _, p := range r.Replica.Account().Optional {
		if p.Name == DataCache {
			r.Data.Cache.Set(p.Bytes)
		}
	}
}
