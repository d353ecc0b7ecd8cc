package config

// Tracking contains the keys of table [tracking].
type Tracking struct {
	MLflow       string // URL or folder; "" = none
	Experiment   string
	Interval     int // steps
	FlushSeconds float64
}

// Keys implements [Options].
func (t *Tracking) Keys() []Key {
	on := IsNot("tracking.mlflow", "")
	return each(Key.Operational, []Key{
		String(&t.MLflow, "mlflow", "").PathOrServer("http://127.0.0.1:5000").
			Doc("Address of an MLflow server, such as `http://127.0.0.1:5000`, or a folder in the format of MLflow's file store. Rank 0 sends parameters, metrics, tags and files of the run. Empty: none."),
		String(&t.Experiment, "experiment", "hetero-train").Only(on).
			Doc("Name of the experiment in MLflow."),
		Int(&t.Interval, "interval", 10).Unit("steps").Silent("MLflow gets points of its first and last step only").
			AtLeast(1).Only(on).
			Doc("Steps between two points."),
		Float(&t.FlushSeconds, "flush_seconds", 10).Unit("s").AtMost(3600).Only(on).
			Doc("Time that the end of a run waits for the server. `hetero-train tracking sync` sends the rest later."),
	})
}
