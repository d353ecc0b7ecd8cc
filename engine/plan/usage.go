package plan

// Usage describes the contents of a plan's arena, in bytes, at the launch that uses the most memory.
type Usage struct {
	At          string `json:"at"`          // name of the launch
	Copies      int64  `json:"copies"`      // copies of parameters, in the layouts and types that kernels need
	Inputs      int64  `json:"inputs"`      // inputs, and outputs that the host reads
	Activations int64  `json:"activations"` // activations and their gradients
	Workspace   int64  `json:"workspace"`   // scratch of the kernel that runs
	Gaps        int64  `json:"gaps"`        // arena bytes that hold no live tensor at this launch
}

// Usage returns the contents of the arena at the launch that uses the most memory.
func (p *Plan) Usage() Usage { return p.usage }

// Classes of tensors in an arena.
const (
	ofActivations = iota
	ofCopies
	ofInputs
	ofWorkspace
	numClasses
)

// measureUsage finds the launch at which the live tensors have the most bytes, and sets p.usage.
func (c *compiler) measureUsage(p *Plan, all []*launch, tensors []*storage) {
	class := map[*storage]int{}
	for _, l := range c.prepare {
		class[l.out[0].mem.root()] = ofCopies
	}
	for _, l := range all {
		if l.workspace != nil {
			class[l.workspace] = ofWorkspace
		}
	}
	for _, in := range c.inputs() {
		class[c.versions[in][0].mem.root()] = ofInputs
	}
	for _, o := range c.outputs() {
		class[c.versions[o.Value][0].mem.root()] = ofInputs
	}
	if len(all) == 0 {
		return
	}
	var change [numClasses][]int64 // change of the live bytes at each launch, by class
	for i := range change {
		change[i] = make([]int64, len(all)+1)
	}
	for _, t := range tensors {
		bytes := alignUp(t.bytes)
		change[class[t]][t.first] += bytes
		if t.last+1 < len(change[0]) {
			change[class[t]][t.last+1] -= bytes
		}
	}
	most, alive := int64(-1), [numClasses]int64{}
	for i, l := range all {
		total := int64(0)
		for k := range alive {
			alive[k] += change[k][i]
			total += alive[k]
		}
		if total > most {
			most = total
			p.usage = Usage{At: l.name, Copies: alive[ofCopies], Inputs: alive[ofInputs],
				Activations: alive[ofActivations], Workspace: alive[ofWorkspace],
				Gaps: p.arenaBytes - total}
		}
	}
}
