package discovery

import (
	"fmt"
	"strconv"
	"strings"
)

// slurmReservedSteps is the first of the step numbers for processes that srun did not start: a batch script, an
// interactive shell, adopted processes.
const slurmReservedSteps = 0xfffffff0

// notInStep returns the reason why srun did not start this process, or "".
func notInStep(in *input) string {
	if _, set := in.env["SLURM_PROCID"]; !set {
		if _, set = in.env["SLURM_JOB_ID"]; !set {
			return "SLURM_PROCID is not set"
		}
		return "SLURM_PROCID is not set: this process was not started by srun"
	}
	step, set := in.env["SLURM_STEP_ID"]
	if !set {
		return "SLURM_STEP_ID is not set: a batch script's own body, not started by srun"
	}
	if number, err := strconv.ParseUint(step, 10, 64); err == nil && number >= slurmReservedSteps {
		return fmt.Sprintf("step %s is a batch script or an interactive shell, not started by srun", step)
	}
	if _, set := in.env["SLURM_STEP_NUM_TASKS"]; !set {
		return "SLURM_STEP_NUM_TASKS is not set: not started by srun"
	}
	if in.inShell() {
		return fmt.Sprintf("an interactive shell of step %s started this process, not srun", step)
	}
	return ""
}

// inShell reports whether srun started the interactive shell above this process (srun --pty bash).
func (in *input) inShell() bool {
	return in.inherited("SLURM_STEP_ID", "SLURM_PROCID", "SLURM_TASK_PID")
}

// otherTasks returns a warning if this process runs alone in an interactive shell of a step with several tasks.
func (in *input) otherTasks(source string) string {
	tasks := in.env["SLURM_STEP_NUM_TASKS"]
	if source != "one process" || tasks == "" || tasks == "1" || !in.inShell() {
		return ""
	}
	return fmt.Sprintf("this shell is one of the %s tasks of step %s; the ranks start on this machine only. To start a "+
		"rank for each task, run: srun --overlap hetero-train …", tasks, in.env["SLURM_STEP_ID"])
}

func fromSlurm(in *input) (claim, string) {
	c := unknown()
	if reason := notInStep(in); reason != "" {
		return c, reason
	}
	c.readRank(in, in.variable("SLURM_PROCID"), in.variable("SLURM_STEP_NUM_TASKS"), in.variable("SLURM_LOCALID"),
		Value{})
	c.addrWant = ""

	list := in.firstOf("SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST")
	hosts, err := expandHosts(list.Text)
	if err != nil {
		in.fault(list.From, got(list.Text), "a list of hosts such as node[1-3,7],login (%v)", err)
	} else {
		c.addr = Value{hosts[0], "first host of " + list.From}
	}
	in.slurmTasks(&c, list.From, len(hosts))
	in.slurmComponents(&c, list.From, hosts)
	c.port = in.slurmPort()
	return c, ""
}

// slurmTasks reads the number of the step's tasks on this node. It also checks that the list of tasks per node agrees
// with the other values.
func (in *input) slurmTasks(c *claim, listName string, hosts int) {
	const name = "SLURM_STEP_TASKS_PER_NODE"
	list := in.variable(name)
	if !list.given() {
		return
	}
	tasks, err := expandCounts(list.Text)
	if err != nil {
		in.fault(name, got(list.Text), "a list of counts such as 4(x2),1 (%v)", err)
		return
	}
	sum := 0
	for _, n := range tasks {
		sum += n
	}
	if c.worldSize > 0 && sum != c.worldSize {
		in.fault(name, got(list.Text), "%d tasks (SLURM_STEP_NUM_TASKS), not %d", c.worldSize, sum)
	}
	if listName == "SLURM_STEP_NODELIST" && hosts > 0 && hosts != len(tasks) {
		in.fault(name, got(list.Text), "%d nodes (SLURM_STEP_NODELIST), not %d", hosts, len(tasks))
	}
	if node := in.variable("SLURM_NODEID"); node.given() {
		if n := in.number(node, 0, len(tasks)-1, wantNode); n >= 0 {
			c.node, c.nodes, c.localWorldSize = n, len(tasks), tasks[n]
			c.names.node, c.names.localWorldSize = node.From, name
		}
	}
}

// slurmPort returns a port that depends on the job id, so that jobs on the same machine use different ports. The port
// is below the ephemeral ports.
func (in *input) slurmPort() Value {
	id := in.env["SLURM_JOB_ID"]
	if _, err := wholeNumber(id); err != nil {
		return Value{}
	}
	if len(id) > 4 {
		id = id[len(id)-4:]
	}
	last, _ := wholeNumber(id)
	return Value{strconv.Itoa(20000 + last), "SLURM_JOB_ID"}
}

// expandHosts expands a Slurm node list: "n[1-3,7],login" is n1, n2, n3, n7, login. Numbers keep their leading zeros.
// If a name has several brackets, the result has all combinations.
func expandHosts(list string) ([]string, error) {
	var hosts []string
	for rest := list; ; {
		item, after, more := cutOutsideBrackets(rest)
		names, err := expandName(item)
		if err != nil {
			return nil, err
		}
		if len(hosts)+len(names) > maxHosts {
			return nil, errTooManyHosts
		}
		hosts = append(hosts, names...)
		if !more {
			return hosts, nil
		}
		rest = after
	}
}

const maxHosts = 65536

var errTooManyHosts = fmt.Errorf("more than %d hosts", maxHosts)

// cutOutsideBrackets cuts at the first comma outside brackets.
func cutOutsideBrackets(list string) (item, after string, more bool) {
	depth := 0
	for i := range len(list) {
		switch list[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				return list[:i], list[i+1:], true
			}
		}
	}
	return list, "", false
}

// expandName expands the brackets of one entry.
func expandName(item string) ([]string, error) {
	names := []string{""}
	for rest := item; rest != ""; {
		literal, after, bracket := strings.Cut(rest, "[")
		ends := []string{literal}
		rest = ""
		if bracket {
			inside, tail, closed := strings.Cut(after, "]")
			if !closed {
				return nil, fmt.Errorf("%.40q: missing ]", item)
			}
			numbers, err := expandRanges(inside)
			if err != nil {
				return nil, fmt.Errorf("%.40q: %w", item, err)
			}
			ends = numbers
			for i := range ends {
				ends[i] = literal + ends[i]
			}
			rest = tail
		}
		if len(names)*len(ends) > maxHosts {
			return nil, errTooManyHosts
		}
		grown := make([]string, 0, len(names)*len(ends))
		for _, name := range names {
			for _, end := range ends {
				grown = append(grown, name+end)
			}
		}
		names = grown
	}
	if !validHost(names[0]) {
		return nil, fmt.Errorf("%.40q: no host name", item)
	}
	return names, nil
}

// expandRanges expands "01-03,7" to 01, 02, 03, 7.
func expandRanges(list string) ([]string, error) {
	var numbers []string
	for _, item := range strings.Split(list, ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		from, err := wholeNumber(first)
		if err != nil {
			return nil, fmt.Errorf("%.20q is not a number or a range", item)
		}
		to, err := wholeNumber(last)
		if err != nil || to < from {
			return nil, fmt.Errorf("%.20q is not a number or a range", item)
		}
		if to-from >= maxHosts-len(numbers) {
			return nil, errTooManyHosts
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, fmt.Sprintf("%0*d", len(first), n))
		}
	}
	return numbers, nil
}

// expandCounts expands "4(x2),1" to 4, 4, 1.
func expandCounts(list string) ([]int, error) {
	var counts []int
	for _, item := range strings.Split(list, ",") {
		text, times := item, 1
		if head, tail, ok := strings.Cut(item, "(x"); ok {
			n, err := wholeNumber(strings.TrimSuffix(tail, ")"))
			if err != nil || n < 1 || !strings.HasSuffix(tail, ")") {
				return nil, fmt.Errorf("%.20q is not a count", item)
			}
			text, times = head, n
		}
		count, err := wholeNumber(text)
		if err != nil || count < 1 || count > maxRanks {
			return nil, fmt.Errorf("%.20q is not a count", item)
		}
		if times > maxHosts-len(counts) {
			return nil, errTooManyHosts
		}
		for range times {
			counts = append(counts, count)
		}
	}
	return counts, nil
}
