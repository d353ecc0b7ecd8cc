package nccl

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Setting is one NCCL variable.
type Setting struct {
	Name  string `json:"name"` // name of the variable: "NCCL_ALGO"
	Value string `json:"value"`
	From  string `json:"from"` // "[nccl]" or "environment"
}

// Settings are the variables with which NCCL runs, sorted by name.
type Settings []Setting

// rule describes the permitted values of a variable: one of several words, a list of names, text in a certain form, or
// a number.
type rule struct {
	words    []string
	fold     bool     // case is ignored, as NCCL does
	list     []string // permitted names; see checkList
	text     bool     // the value consists of names of interfaces, adapters or subsystems
	min, max int
	since    Version
}

var (
	onOff      = []string{"0", "1"}
	algorithms = []string{"Tree", "Ring", "CollnetDirect", "CollnetChain", "NVLS", "NVLSTree", "PAT"}
	protocols  = []string{"LL", "LL128", "Simple"}
	operations = []string{"Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce"}
)

// allowed contains the variables that are passed on to NCCL. None of them makes NCCL load code or write files.
var allowed = map[string]rule{
	"NCCL_DEBUG": {words: []string{"VERSION", "WARN", "INFO", "TRACE"}, fold: true}, "NCCL_DEBUG_SUBSYS": {text: true},
	"NCCL_ALGO": {list: algorithms}, "NCCL_PROTO": {list: protocols},
	"NCCL_SOCKET_IFNAME": {text: true}, "NCCL_SOCKET_FAMILY": {words: []string{"AF_INET", "AF_INET6"}},
	"NCCL_IB_HCA": {text: true},
	"NCCL_NET":    {words: []string{"IB", "Socket"}, fold: true}, "NCCL_IB_DISABLE": {words: onOff},
	"NCCL_P2P_DISABLE": {words: onOff}, "NCCL_SHM_DISABLE": {words: onOff},
	"NCCL_MIN_NCHANNELS": {min: 1, max: 64}, "NCCL_MAX_NCHANNELS": {min: 1, max: 64},
	"NCCL_MIN_CTAS": {min: 1, max: 64, since: MaxCTAs}, "NCCL_MAX_CTAS": {min: 1, max: 64, since: MaxCTAs},
	"NCCL_NTHREADS": {words: []string{"64", "128", "256", "512"}}, "NCCL_BUFFSIZE": {min: 1, max: 1 << 30},
	"NCCL_SOCKET_NTHREADS": {min: 1, max: 16}, "NCCL_NSOCKS_PERTHREAD": {min: 1, max: 16},
	"NCCL_P2P_LEVEL":     {words: []string{"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"}},
	"NCCL_NET_GDR_LEVEL": {words: []string{"LOC", "PIX", "PXB", "PHB", "SYS"}}, "NCCL_NET_GDR_READ": {words: onOff},
	"NCCL_IB_GID_INDEX": {min: 0, max: 255}, "NCCL_IB_TC": {min: 0, max: 255}, "NCCL_IB_SL": {min: 0, max: 15},
	"NCCL_IB_QPS_PER_CONNECTION": {min: 1, max: 128}, "NCCL_IB_SPLIT_DATA_ON_QPS": {words: onOff},
	"NCCL_IB_TIMEOUT": {min: 1, max: 22}, "NCCL_IB_RETRY_CNT": {min: 0, max: 7},
	"NCCL_IB_ADAPTIVE_ROUTING":    {words: onOff},
	"NCCL_NCHANNELS_PER_NET_PEER": {min: 1, max: 64}, "NCCL_CROSS_NIC": {words: []string{"0", "1", "2"}},
	"NCCL_PXN_DISABLE":  {words: onOff},
	"NCCL_NVLS_ENABLE":  {words: []string{"0", "1", "2"}, since: MaxCTAs},
	"NCCL_PAT_ENABLE":   {words: []string{"0", "1", "2"}, since: Profiler},
	"NCCL_CUMEM_ENABLE": {words: onOff}, "NCCL_RAS_ENABLE": {words: onOff, since: StrictChoice},
	"NCCL_LAUNCH_ORDER_IMPLICIT": {words: onOff, since: 22600},
	"NCCL_RUNTIME_CONNECT":       {words: onOff, since: 22200},
	"NCCL_HOSTID":                {text: true}, "NCCL_MULTI_RANK_GPU_ENABLE": {words: onOff, since: MultiRankGPU},
}

// Settle combines the variables of a configuration with those of the environment. table lists the configuration as
// pairs of name and value. If both set a variable, the configuration takes precedence. Variables that make NCCL load
// code or write files are an error. Settle keeps other unknown variables of the environment and returns a warning. The
// error names every faulty variable.
func Settle(table [][2]string, environ []string) (s Settings, warnings []string, err error) {
	var faults []string
	for _, v := range table {
		if fault := check(v[0], v[1]); fault != "" {
			faults = append(faults, fmt.Sprintf("[nccl]: %s: %s", v[0], fault))
			continue
		}
		s = append(s, Setting{v[0], v[1], "[nccl]"})
	}
	for _, entry := range environ {
		name, value, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, "NCCL_") || value == "" {
			continue
		}
		_, known := allowed[name]
		at := slices.IndexFunc(s, func(o Setting) bool { return o.Name == name })
		switch {
		case refused(name):
			faults = append(faults,
				fmt.Sprintf(
					"%s: this setting makes NCCL load code or write files, which is not allowed: unset the variable",
					name))
		case !known:
			warnings = append(warnings,
				fmt.Sprintf(
					"environment variable %s=%s is not a known setting: the program passes it to NCCL unchanged", name,
					printable(value)))
		case at >= 0 && s[at].Value != value:
			warnings = append(warnings, fmt.Sprintf("environment variable %s=%s has no effect, because [nccl] sets %s",
				name, printable(value), s[at].Value))
		case at >= 0:
		default:
			if fault := check(name, value); fault != "" {
				faults = append(faults, fmt.Sprintf("environment: %s: %s", name, fault))
				continue
			}
			s = append(s, Setting{name, value, "environment"})
		}
	}
	slices.SortFunc(s, func(a, b Setting) int { return strings.Compare(a.Name, b.Name) })
	slices.Sort(warnings)
	if len(faults) > 0 {
		slices.Sort(faults)
		return nil, nil, fmt.Errorf("check the settings of NCCL: %s", strings.Join(faults, "; "))
	}
	return s, warnings, nil
}

// refused reports whether the words in a variable's name indicate that it names code to load or a file to write.
func refused(name string) bool {
	return strings.Contains(name, "PLUGIN") || strings.Contains(name, "_DUMP") ||
		slices.ContainsFunc([]string{"_FILE", "_PATH", "_DIR", "_LIB"}, func(end string) bool {
			return strings.HasSuffix(name, end)
		})
}

// check returns what is wrong with a value, or "".
func check(name, value string) string {
	r, known := allowed[name]
	n, notNumber := strconv.Atoi(value)
	switch {
	case refused(name) || !known:
		return "not on the list of allowed settings"
	case len(r.words) > 0:
		if !among(r.words, value, r.fold) {
			return fmt.Sprintf("got %s, want %s", printable(value), strings.Join(r.words, ", "))
		}
	case len(r.list) > 0:
		return checkList(value, r.list)
	case r.text:
		if len(value) > 256 || strings.ContainsFunc(value, func(c rune) bool { return c <= ' ' || c > '~' }) {
			return fmt.Sprintf("got %s, want at most 256 printable characters without spaces", printable(value))
		}
	case notNumber != nil || n < r.min || n > r.max:
		return fmt.Sprintf("got %s, want a whole number from %d to %d", printable(value), r.min, r.max)
	}
	return ""
}

// checkList returns what is wrong with a choice of algorithms or protocols, or "". A choice is a list of names
// separated by commas; a leading ^ means all names except these. From version StrictChoice on, lists for single
// operations may follow, separated by semicolons: "Ring,Tree;allreduce:^Tree". NCCL itself reports unknown names late
// or never: older versions ignore them, and versions from StrictChoice on fail at the first use.
func checkList(value string, names []string) string {
	for i, part := range strings.Split(value, ";") {
		operation, list, forOne := strings.Cut(part, ":")
		if !forOne {
			list = part
		}
		switch {
		case forOne && !among(operations, operation, true):
			return fmt.Sprintf("got operation %s, want %s", printable(operation), strings.Join(operations, ", "))
		case !forOne && i > 0:
			return fmt.Sprintf("got %s after a semicolon, want an operation and a colon before it", printable(part))
		}
		for _, name := range strings.Split(strings.TrimPrefix(list, "^"), ",") {
			if !among(names, name, true) {
				return fmt.Sprintf("got %s, want some of %s", printable(name), strings.Join(names, ", "))
			}
		}
	}
	return ""
}

func among(words []string, value string, fold bool) bool {
	return slices.ContainsFunc(words, func(w string) bool { return w == value || fold && strings.EqualFold(w, value) })
}

func printable(value string) string { return strconv.Quote(value[:min(len(value), 80)]) }

// Apply sets the variables in the environment of this process. Call it before NCCL is opened, because NCCL then reads
// them.
func (s Settings) Apply() error {
	for _, one := range s {
		if err := os.Setenv(one.Name, one.Value); err != nil {
			return err
		}
	}
	return nil
}

// TooNew returns the settings that version v ignores because it is too old.
func (s Settings) TooNew(v Version) (names []string) {
	for _, one := range s {
		if since := allowed[one.Name].since; !v.Has(since) {
			names = append(names, fmt.Sprintf("%s (from %v on)", one.Name, since))
		}
	}
	return names
}

func (s Settings) String() string {
	if len(s) == 0 {
		return "none"
	}
	var words []string
	for _, one := range s {
		words = append(words, one.Name+"="+one.Value)
	}
	return strings.Join(words, " ")
}
