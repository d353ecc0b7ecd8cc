package plan

import (
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/engine/train/replica"
)

// Report is the output of command plan.
type Report struct {
	Program    string `json:"program"`
	Model      string `json:"model"`
	Parameters int64  `json:"parameters"`
	Classes    int    `json:"classes"`
	ImageSize  int    `json:"image_size"`
	// number of tokens in a sample of text; if it is set, ImageSize and Classes have no meaning
	Tokens      int    `json:"sequence_length,omitempty"`
	Precision   string `json:"precision"`
	Device      string `json:"device"`
	DeviceModel string `json:"device_model"`
	// value of --memory, or memory of the device; for a device that computes in host memory, it is Limit
	MemoryBytes   int64               `json:"memory_bytes"`
	Limit         memory.Limit        `json:"limit"` // memory that the process of a rank may use
	Optimizer     string              `json:"optimizer"`
	BatchSize     int                 `json:"batch_size"` // global batch size
	Accumulation  int                 `json:"grad_accumulation"`
	MicroBatch    int                 `json:"micro_batch"`
	StepFLOPs     int64               `json:"step_flops"` // operations of one optimizer step on all ranks together
	ForwardFLOPs  int64               `json:"forward_flops"`
	BackwardFLOPs int64               `json:"backward_flops"`
	Table         []replica.Footprint `json:"table"` // memory of one rank, by its number of samples
	// largest number of samples of one rank that fits into memory; 0: none fits
	LargestFit int `json:"largest_micro_batch"`
	// refusal states the memory that the smallest micro-batch needs, if LargestFit is 0.
	refusal *replica.MemoryError
	Ranks   []rankPlan `json:"ranks"`
	// Reserved is the memory that each rank reserves in a run of several ranks. It is enough for ReservedFor samples.
	// Within this memory, balancing can change shares without new allocations. With balance.fixed_shares, Reserved is
	// 0.
	Reserved    int64      `json:"reserved_bytes,omitempty"`
	ReservedFor int        `json:"reserved_samples,omitempty"`
	Ports       []listener `json:"ports"` // ports of the run if it uses several machines
	// reason why the plan does not contain the smaller last step of an epoch; "": it contains the step
	LastStep string `json:"last_step_unknown,omitempty"`
	// times on the GPU of --device-model; nil without this flag
	Prediction *prediction `json:"prediction,omitempty"`
}

// rankPlan is the plan of one rank.
type rankPlan struct {
	Rank  int   `json:"rank"`
	Share int   `json:"samples"` // share of a micro-batch in samples
	Bytes int64 `json:"bytes"`   // memory of the device
	// memory of the process, without that of the device; left out with --device-model, because it is unknown
	HostBytes int64 `json:"host_bytes,omitempty"`
	Fits      bool  `json:"fits"`
	StepFL    int64 `json:"step_flops"`
}
