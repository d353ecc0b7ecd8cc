package scheduler

import "fmt"

// seconds formats a time for a reason.
func seconds(v float64) string {
	if v >= 1e9 {
		return fmt.Sprintf("%.3g s", v)
	}
	return fmt.Sprintf("%.0f s", v)
}

// types names the types of GPUs: "4 x volta" or "2 x volta and 2 x turing".
func (s *State) types(gpus []int) string {
	text := ""
	for t := range s.Cluster.Types {
		n := 0
		for _, g := range gpus {
			if s.Cluster.GPUs[g].Type == t {
				n++
			}
		}
		if n > 0 {
			if text != "" {
				text += " and "
			}
			text += fmt.Sprintf("%d x %s", n, s.Cluster.Types[t].Name)
		}
	}
	return text
}

// gpus returns a number of GPUs in words.
func gpus(n int) string {
	switch n {
	case 0:
		return "no GPU"
	case 1:
		return "1 GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

// atMost describes the largest number of GPUs in words.
func atMost(n int) string {
	if n == 0 {
		return gpus(n)
	}
	return "at most " + gpus(n)
}
