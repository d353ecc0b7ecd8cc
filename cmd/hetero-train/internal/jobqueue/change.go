package jobqueue

// Change describes one change of a job, so that the program can log and revert it.
type Change struct {
	Job      string   `json:"job"` // ID
	Name     string   `json:"name"`
	Identity string   `json:"identity"`        // UID or time of submission, which no later job with the same ID has
	Nodes    []string `json:"nodes"`           // nodes to which the job was restricted
	Hosts    []string `json:"hosts,omitempty"` // only Kubernetes: host names of these nodes, as in the affinity
	Released bool     `json:"released"`        // the change also released the job, which its owner held
}

// Reversal is the result of an attempt to revert a change.
type Reversal struct {
	Job      string `json:"job"`
	Name     string `json:"name"`
	Possible bool   `json:"possible"` // false: the job is gone, has started, or has another placement
	Over     bool   `json:"over"`     // no later attempt can revert the change
	Done     bool   `json:"done"`
	What     string `json:"what"` // what undo changes in the queue, or why it cannot
}
