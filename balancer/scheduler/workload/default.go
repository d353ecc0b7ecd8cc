package workload

import (
	"fmt"
	"math"

	"github.com/hetero-train/hetero-train/balancer/divide"
	"github.com/hetero-train/hetero-train/balancer/scheduler"
)

// Setup is a cluster, the kinds of jobs that may run on it, and their speeds.
type Setup struct {
	Cluster *scheduler.Cluster
	Kinds   []scheduler.Kind
	Speeds  *Table
	Shapes  []Shape // by kind: demands of a job of the kind
}

// Shape describes the resources that jobs of a kind request. Generate makes no jobs of a kind with weight 0.
type Shape struct {
	Weight    float64   // relative frequency of the kind; Generate divides the weights by their sum
	Sizes     []float64 // Sizes[i]: fraction of jobs that need 1 << i GPUs
	Seconds   float64   // median running time on GPUs of type 0
	Sigma     float64   // standard deviation of the logarithm of the running time
	CPUs      float64   // cores for each GPU
	Memory    float64   // bytes of host memory for each GPU
	Network   float64   // bytes/s from each GPU of a job on several machines
	Low, High float64   // range of priorities
}

const (
	giga = 1e9
	tera = 1e12
	gib  = 1 << 30
)

// Types of the default cluster, indices into Cluster.Types. The numbers are those of the data sheets of V100 16 GB, T4
// and Radeon VII, in single precision.
const (
	Volta = iota
	Turing
	Radeon
)

var defaultTypes = []scheduler.GPUType{
	Volta:  {Name: "volta", Memory: 16 * gib, Bandwidth: 900 * giga, Compute: 15.7 * tera},
	Turing: {Name: "turing", Memory: 16 * gib, Bandwidth: 320 * giga, Compute: 8.1 * tera},
	Radeon: {Name: "radeon", Memory: 16 * gib, Bandwidth: 1024 * giga, Compute: 13.4 * tera},
}

// MachineSpec describes machines of [NewCluster].
type MachineSpec struct {
	Count   int     // machines
	Type    int     // type of their GPUs
	GPUs    int     // GPUs of each machine
	CPUs    float64 // cores
	Memory  float64 // bytes
	Network float64 // bytes/s
}

// NewCluster creates a cluster of machines. Temperatures and utilizations are unknown.
func NewCluster(types []scheduler.GPUType, specs ...MachineSpec) *scheduler.Cluster {
	c := &scheduler.Cluster{Types: types}
	for _, spec := range specs {
		for range spec.Count {
			m := scheduler.Machine{Name: fmt.Sprintf("%s-%d", types[spec.Type].Name, len(c.Machines)), CPUs: spec.CPUs,
				Memory: spec.Memory, Network: spec.Network}
			for k := range spec.GPUs {
				m.GPUs = append(m.GPUs, len(c.GPUs))
				c.GPUs = append(c.GPUs, scheduler.GPU{Name: fmt.Sprintf("%s/%d", m.Name, k), Type: spec.Type,
					Machine:     len(c.Machines),
					Utilization: math.NaN(), Temperature: math.NaN()})
			}
			c.Machines = append(c.Machines, m)
		}
	}
	return c
}

// DefaultCluster has 16 GPUs: two machines with 4 Volta GPUs each, one with 4 Turing GPUs, one with 4 Radeon GPUs.
func DefaultCluster() *scheduler.Cluster {
	const cores, memory, network = 32, 256 * gib, 10 * giga / 8
	return NewCluster(defaultTypes,
		MachineSpec{Count: 2, Type: Volta, GPUs: 4, CPUs: cores, Memory: memory, Network: network},
		MachineSpec{Count: 1, Type: Turing, GPUs: 4, CPUs: cores, Memory: memory, Network: network},
		MachineSpec{Count: 1, Type: Radeon, GPUs: 4, CPUs: cores, Memory: memory, Network: network})
}

// defaultKind is a kind of the default workload.
type defaultKind struct {
	kind  scheduler.Kind
	shape Shape
	// speeds on one GPU of each type, relative to Volta
	speed [3]float64
	// fractions of the GPU's arithmetic, of its memory bandwidth, and of the host's time, that the job uses when it
	// runs alone
	compute, bandwidth, host float64
	// fraction of a step that a gang spends in communication, within one machine and across machines
	packed, spread float64
	batch          int     // samples for each GPU; 0: not divisible
	fixed          float64 // fraction of a step's time that does not depend on the number of samples
}

// The relative speeds of defaultKinds follow the arithmetic (molecules, training), the memory bandwidth (fluids, joins)
// or the host (images). Training is slower on Radeon than its arithmetic suggests, because the libraries for Radeon are
// less optimized.
var defaultKinds = []defaultKind{
	{kind: scheduler.Kind{Name: "molecular dynamics", Class: scheduler.Simulation, GPUMemory: 4 * gib, Save: 5,
		Load: 10},
		shape: Shape{Weight: 0.15, Sizes: []float64{0.6, 0.25, 0.15}, Seconds: 400, Sigma: 0.8, CPUs: 4,
			Memory: 16 * gib, Network: 0.1 * giga, Low: 0, High: 0.8},
		speed: [3]float64{1, 0.5, 0.8}, compute: 0.85, bandwidth: 0.3, host: 0.1, packed: 0.08, spread: 0.3},
	{kind: scheduler.Kind{Name: "fluid dynamics", Class: scheduler.Simulation, GPUMemory: 8 * gib, Save: 10, Load: 20},
		shape: Shape{Weight: 0.15, Sizes: []float64{0.4, 0.3, 0.3}, Seconds: 500, Sigma: 0.8, CPUs: 4, Memory: 32 * gib,
			Network: 0.2 * giga, Low: 0, High: 0.8},
		speed: [3]float64{1, 0.36, 1.1}, compute: 0.35, bandwidth: 0.9, host: 0.1, packed: 0.06, spread: 0.35},
	{kind: scheduler.Kind{Name: "image classification", Class: scheduler.Learning, GPUMemory: 9 * gib, Save: 5,
		Load: 15},
		shape: Shape{Weight: 0.2, Sizes: []float64{0.5, 0.2, 0.2, 0.1}, Seconds: 600, Sigma: 1, CPUs: 6,
			Memory: 24 * gib, Network: 0.3 * giga, Low: 0.2, High: 1},
		speed: [3]float64{1, 0.42, 0.5}, compute: 0.8, bandwidth: 0.6, host: 0.5, packed: 0.05, spread: 0.25, batch: 64,
		fixed: 0.12},
	{kind: scheduler.Kind{Name: "language model", Class: scheduler.Learning, GPUMemory: 11 * gib, Save: 10, Load: 30},
		shape: Shape{Weight: 0.2, Sizes: []float64{0.4, 0.25, 0.25, 0.1}, Seconds: 700, Sigma: 1, CPUs: 2,
			Memory: 24 * gib, Network: 0.5 * giga, Low: 0.2, High: 1},
		speed: [3]float64{1, 0.34, 0.4}, compute: 0.95, bandwidth: 0.5, host: 0.05, packed: 0.07, spread: 0.4,
		batch: 16, fixed: 0.08},
	{kind: scheduler.Kind{Name: "recommendation", Class: scheduler.Learning, GPUMemory: 6 * gib, Save: 3, Load: 8},
		shape: Shape{Weight: 0.1, Sizes: []float64{0.8, 0.2}, Seconds: 300, Sigma: 0.8, CPUs: 4, Memory: 32 * gib,
			Network: 0.4 * giga, Low: 0.2, High: 1},
		speed: [3]float64{1, 0.55, 0.75}, compute: 0.25, bandwidth: 0.6, host: 0.4, packed: 0.1, spread: 0.4,
		batch: 1024, fixed: 0.3},
	{kind: scheduler.Kind{Name: "image decoding", Class: scheduler.Processing, GPUMemory: 2 * gib, Save: 1, Load: 2},
		shape: Shape{Weight: 0.1, Sizes: []float64{1}, Seconds: 120, Sigma: 0.6, CPUs: 8, Memory: 16 * gib, Low: 0,
			High: 0.6},
		speed: [3]float64{1, 0.9, 0.6}, compute: 0.3, bandwidth: 0.3, host: 0.7},
	{kind: scheduler.Kind{Name: "table join", Class: scheduler.Processing, GPUMemory: 10 * gib, Save: 2, Load: 6},
		shape: Shape{Weight: 0.1, Sizes: []float64{0.7, 0.3}, Seconds: 180, Sigma: 0.8, CPUs: 4, Memory: 48 * gib,
			Network: 0.3 * giga, Low: 0, High: 0.6},
		speed: [3]float64{1, 0.45, 1.05}, compute: 0.2, bandwidth: 0.85, host: 0.3, packed: 0.1, spread: 0.4},
}

// stepsPerSecond is the speed of all default kinds on one Volta GPU. Only ratios of speeds matter.
const stepsPerSecond = 10

// sharingCost is the fraction of their speeds that two jobs lose on one GPU, even if they use different parts of it.
const sharingCost = 0.05

// Default is the default cluster with seven kinds of jobs: simulation, machine learning and data processing. The speeds
// are a model, not measurements. Package ingest reads measured speeds.
func Default() *Setup {
	speeds := make([][]float64, len(defaultKinds))
	for k := range defaultKinds {
		speeds[k] = defaultKinds[k].speed[:]
	}
	return setupOf(DefaultCluster(), defaultKinds, speeds)
}

// setupOf makes a setup of kinds with speeds on one GPU, by kind and type, relative to stepsPerSecond.
func setupOf(c *scheduler.Cluster, kinds []defaultKind, speeds [][]float64) *Setup {
	s := &Setup{Cluster: c, Speeds: &Table{}}
	for i := range kinds {
		d := &kinds[i]
		s.Kinds = append(s.Kinds, d.kind)
		s.Shapes = append(s.Shapes, d.shape)
		s.Speeds.Kinds = append(s.Speeds.Kinds, d.rates(speeds[i]))
		for k := range i + 1 {
			s.Speeds.Pairs = append(s.Speeds.Pairs, pairsOf(c.Types, i, k, d, &kinds[k], speeds[i], speeds[k])...)
		}
	}
	if err := s.Speeds.Build(len(c.Types)); err != nil {
		panic(err) // a mistake in the tables of this package
	}
	return s
}

// gangs are the numbers of GPUs for which the default speeds are given.
var gangs = []int{1, 2, 4, 8}

func (d *defaultKind) rates(speeds []float64) Rates {
	r := Rates{Batch: d.batch, Types: make([][]Rate, len(speeds))}
	for typ, relative := range speeds {
		one := stepsPerSecond * relative
		for _, n := range gangs {
			packed, spread := d.gang(one, n)
			r.Types[typ] = append(r.Types[typ], Rate{GPUs: n, Packed: packed, Spread: spread})
		}
		if d.batch == 0 {
			continue
		}
		var c divide.Curve
		for _, eighths := range []int{1, 2, 4, 8, 16, 24, 32} {
			samples := max(1, d.batch*eighths/8)
			part := float64(samples) / float64(d.batch)
			c = append(c, divide.Point{Samples: float64(samples), Seconds: (d.fixed + (1-d.fixed)*part) / one})
		}
		r.Curves = append(r.Curves, c)
	}
	return r
}

// gang returns the speed of n GPUs in one machine and across machines. The communication time grows with (n-1)/n, as in
// a ring all-reduce, and is the same for all types of GPUs.
func (d *defaultKind) gang(one float64, n int) (packed, spread float64) {
	ring := 2 * float64(n-1) / float64(n) / stepsPerSecond
	return float64(n) / (1/one + d.packed*ring), float64(n) / (1/one + d.spread*ring)
}

// pairsOf models two jobs on the same GPUs. The jobs divide the resource with the highest total use in proportion to
// their uses of it.
func pairsOf(types []scheduler.GPUType, i, k int, a, b *defaultKind, speedsA, speedsB []float64) []Pair {
	slowdown := max(1, a.compute+b.compute, a.bandwidth+b.bandwidth, a.host+b.host) / (1 - sharingCost)
	var pairs []Pair
	for typ := range types {
		if a.kind.GPUMemory+b.kind.GPUMemory > types[typ].Memory {
			continue
		}
		for _, n := range gangs {
			speedA, _ := a.gang(stepsPerSecond*speedsA[typ], n)
			speedB, _ := b.gang(stepsPerSecond*speedsB[typ], n)
			pairs = append(pairs, Pair{Kind: i, Other: k, Type: typ, GPUs: n, Speed: speedA / slowdown,
				OtherSpeed: speedB / slowdown})
		}
	}
	return pairs
}
