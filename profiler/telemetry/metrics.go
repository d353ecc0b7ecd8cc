package telemetry

// Metric is the index of a step metric: a value in the record of a step. The sensors of a Sample are not step metrics.
type Metric int

// Step metrics, in the order of the keys in a record.
const (
	Epoch Metric = iota
	Iteration
	Loss
	Throughput
	IterationTime
	DataLoading
	Forward
	Backward
	Communication
	OptimizerTime
	CommunicationHidden
	Exchanges
	CommunicationBytes
	Buckets
	BatchSize
	Timestamp
	Rank
	Accuracy
	LearningRate
	GradNorm
	LossScale
	Skipped
	StepTime
	TrainingTime

	MetricCount // number of step metrics
)

// Kind is the type of a step metric in a record.
type Kind int

const (
	Number  Kind = iota // a float64 in Values; null if it is NaN or infinite
	Integer             // an int64
	Seconds             // a time.Duration, as seconds
	Instant             // a time.Time, as seconds since 1970; null if it is unknown
	Flag                // a bool
	Derived             // computed from other metrics when the record is written
)

// Scope states whether each rank has its own value.
type Scope int

const (
	OfRun  Scope = iota // the value is equal on all ranks
	OfRank              // each rank has its own value
)

// Point is the rule by which a point in TensorBoard and MLflow summarizes several steps.
type Point int

const (
	// the value of the last step; for a Flag, the number of steps of the run in which it was true
	LastStep    Point = iota
	MeanOfSteps       // the mean of the steps since the previous point
)

// MetricDeclaration describes a step metric. To add a metric of kind Number, add its constant and its row, and set its
// value where it is measured. Records, documentation, charts and exporters are derived from the row.
type MetricDeclaration struct {
	Key      string // key in a record
	Kind     Kind
	Scope    Scope
	Point    Point // how a point of Tag summarizes steps
	Unit     string
	Doc      string // meaning, for readers of records
	Optional bool   // records omit the key if the value is 0, which means unknown

	Column     string // name in the figures of the dashboard; "" if the dashboard shows no chart of the metric
	Tag        string // name of the chart in TensorBoard and of the metric in MLflow; "": none
	Prometheus string // name of the metric in Prometheus; "": none
	Help       string // description of the metric in Prometheus
	Panel      *Panel // chart of the dashboard with only this metric; nil: no such chart
}

// Panel describes a chart of the dashboard that shows one metric.
type Panel struct {
	ID       string `json:"id"`
	Title    string `json:"title"`
	Label    string `json:"label"` // name of the line
	Explain  string `json:"explain"`
	Digits   int    `json:"digits"`   // significant digits of the axis; 0: the default
	Zero     bool   `json:"zero"`     // the axis includes 0
	Optional bool   `json:"optional"` // the chart is hidden if a run has no value
}

// Values contains the values of the metrics of kind Number. The other elements are 0.
type Values [MetricCount]float64

// Metrics contains one row per step metric.
var Metrics = [MetricCount]MetricDeclaration{
	Epoch:     {Key: "epoch", Kind: Integer, Doc: "number of the epoch, from 0"},
	Iteration: {Key: "iteration", Kind: Integer, Unit: "steps", Doc: "optimizer steps done, including this step"},
	Loss: {Key: "loss", Doc: "mean over the global batch of the step", Column: "loss", Tag: "train/loss",
		Prometheus: "hetero_train_loss", Help: "Mean training loss of the last step."},
	Throughput: {Key: "throughput", Kind: Derived, Scope: OfRank, Unit: "samples/s",
		Doc: "`batch_size` / `step_time`"},
	IterationTime: {Key: "iteration_time", Kind: Derived, Scope: OfRank, Unit: "s",
		Doc: "exactly the sum of the next five times"},
	DataLoading: {Key: "data_loading_time", Kind: Seconds, Scope: OfRank, Point: MeanOfSteps, Unit: "s",
		Doc: "the rank's wait for data", Column: "data", Tag: "time_seconds/data"},
	Forward: {Key: "forward_time", Kind: Seconds, Scope: OfRank, Point: MeanOfSteps, Unit: "s",
		Doc: "forward pass", Column: "forward", Tag: "time_seconds/forward"},
	Backward: {Key: "backward_time", Kind: Seconds, Scope: OfRank, Point: MeanOfSteps, Unit: "s",
		Doc: "backward pass", Column: "backward", Tag: "time_seconds/backward"},
	Communication: {Key: "communication_time", Kind: Seconds, Scope: OfRank, Point: MeanOfSteps, Unit: "s",
		Doc: "exposed: the rank's wait for gradients", Column: "communication", Tag: "time_seconds/communication"},
	OptimizerTime: {Key: "optimizer_time", Kind: Seconds, Scope: OfRank, Point: MeanOfSteps, Unit: "s",
		Doc: "norm, clipping and update", Column: "optimizer", Tag: "time_seconds/optimizer"},
	CommunicationHidden: {Key: "communication_hidden_time", Kind: Seconds, Scope: OfRank, Point: MeanOfSteps, Unit: "s",
		Doc: "communication that overlaps computing; not part of `iteration_time`", Column: "hidden",
		Tag: "time_seconds/communication_hidden"},
	Exchanges: {Key: "exchange_time", Kind: Seconds, Scope: OfRank, Unit: "s",
		Doc:    "time that the forward and backward passes wait for batch-normalisation exchanges with other ranks; part of `forward_time` and `backward_time`",
		Column: "exchange"},
	CommunicationBytes: {Key: "communication_bytes", Kind: Integer, Scope: OfRank, Unit: "bytes",
		Doc: "gradients that were summed over ranks, in the data type of the messages"},
	Buckets: {Key: "communication_buckets", Kind: Integer, Scope: OfRank, Doc: "all-reduces of these gradients"},
	BatchSize: {Key: "batch_size", Kind: Integer, Scope: OfRank, Unit: "samples",
		Doc: "share of this rank in this step"},
	Timestamp: {Key: "timestamp", Kind: Instant, Unit: "s", Doc: "end of the step, since 1970-01-01 UTC"},
	Rank:      {Key: "rank", Kind: Integer, Scope: OfRank, Doc: "number of the rank"},
	Accuracy:  {Key: "accuracy", Unit: "fraction", Doc: "top-1 on the training batch", Column: "accuracy"},
	LearningRate: {Key: "learning_rate", Doc: "learning rate", Column: "learning_rate", Tag: "train/learning_rate",
		Prometheus: "hetero_train_learning_rate", Help: "Learning rate of the last step.",
		Panel: &Panel{ID: "rate", Title: "Learning rate", Label: "learning rate",
			Explain: "Learning rate of each step.", Digits: 3, Zero: true}},
	GradNorm: {Key: "grad_norm", Doc: "norm of all gradients before clipping", Column: "grad_norm",
		Tag:        "train/grad_norm",
		Prometheus: "hetero_train_gradient_norm", Help: "Norm of the gradient of the last step, before clipping.",
		Panel: &Panel{ID: "norm", Title: "Gradient norm", Label: "gradient norm",
			Explain: "Norm of all gradients before clipping. Peaks often precede a diverging loss.",
			Zero:    true, Optional: true}},
	LossScale: {Key: "loss_scale", Doc: "factor of the loss in mixed precision", Column: "loss_scale",
		Prometheus: "hetero_train_loss_scale", Help: "Factor of the loss in mixed precision."},
	Skipped: {Key: "skipped", Kind: Flag, Doc: "true if the step updated nothing because the gradient was not finite",
		Column: "skipped", Tag: "train/skipped_steps"},
	StepTime: {Key: "step_time", Kind: Seconds, Unit: "s", Optional: true,
		Doc: "training time of a step on rank 0, mean of the steps since the previous record; the chart `time_seconds/step` has the mean of its steps"},
	TrainingTime: {Key: "training_time", Kind: Seconds, Unit: "s", Optional: true,
		Doc: "training time of the run on rank 0, up to the end of this step", Column: "training_time",
		Tag: "progress/training_seconds"},
}
