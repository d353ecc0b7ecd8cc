package scheduler

// swaps records the results of [bounded.swap] during one decision, by class of the jobs that wait. In a class, a job
// with larger demands of CPU cores and memory waits for at least as long, and finds at most as many GPUs. Its list is
// in the order of GPU time, so running jobs that do not yield to a job do not yield to later ones. The longer a job
// waits, the more running jobs yield to it.
//
// Usually too few GPUs yield, even if the first job of a class had the largest demand of the class. swap then tries no
// job of the class. Otherwise it tries one job of each shape. It leaves out shapes with a larger demand than one that
// waits for longer than any stop takes, and that lacks CPU cores or memory. Each such job takes a time proportional to
// the number of running jobs, and one that needs several types of GPUs also the number of GPUs. If each job has another
// demand, and CPU cores or memory are scarce, the time of a decision is then that of the queue times the running jobs.
type swaps struct {
	cheapest, dearest float64 // times to save and load a checkpoint, in s

	turn  int   // number of the decision
	few   []int // by index into shapes.sizes: the turn in which too few GPUs can become free
	class []tries
}

// tries describes the jobs of a class.
type tries struct {
	turn    int  // the other fields are valid in this turn
	shapes  int  // for which stays has an answer of their own
	largest bool // whether noneFor has an answer for the largest demand
}

// at returns what is known about a class.
func (v *swaps) at(class int) *tries {
	c := &v.class[class]
	if c.turn != v.turn {
		*c = tries{turn: v.turn}
	}
	return c
}
