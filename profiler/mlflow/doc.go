// Package mlflow sends parameters, metrics, tags and files of a run to MLflow, and reads runs from a server.
//
//	w, err := mlflow.OpenSpool(logDir, start, fresh, queue, onFault) // the training goroutine adds lines; it never waits
//	w.Add(mlflow.Line{Step: 10, Time: now, Metrics: values})
//	s := mlflow.StartSender(mlflow.SenderOptions{LogDir: logDir, Target: "http://127.0.0.1:5000"})
//	w.Close()
//	left := s.Close(10 * time.Second)                          // sends the rest of the spool, for at most 10 s
//
//	err := mlflow.Sync(ctx, mlflow.SenderOptions{…})           // later, without a run
//
//	r, run, err := mlflow.OpenRun(ctx, "http://127.0.0.1:5000/#/experiments/1/runs/…", environ)
//	points, err := r.History(ctx, run.ID, "train/loss", most)
//
// # Spool
//
// The spool is the file SpoolFile in the folder of logs, with one JSON object per line. A resumed run repeats the steps
// after its checkpoint with equal results. The spool drops points of steps that it already contains, so each point is
// stored once.
//
// # No doubled points
//
// MLflow appends metrics, so a request that is sent twice may duplicate its points. Each batch sets the tag SentTag to
// the position in the spool after the batch. After a failure or a crash, the sender continues at the position in this
// tag on the server. If the server has stored the points but not the tag, the sender repeats the batch with equal time
// stamps. MLflow ignores points that it has already stored.
//
// # Limits of MLflow
//
// A batch contains at most 1,000 metrics, 100 parameters, 100 tags and 1 MiB. Names have at most 250 characters. Longer
// names, and values of parameters and tags above MLflow's limits, are truncated.
//
// # Security
//
// Credentials come from the variables of MLflow's own client: MLFLOW_TRACKING_TOKEN, or MLFLOW_TRACKING_USERNAME and
// MLFLOW_TRACKING_PASSWORD. The client follows no redirects. A sender reads at most mostReply bytes of a reply, and a
// Reader at most mostReadReply bytes.
package mlflow
