package system

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// cgroups describes the control groups of this process.
type cgroups struct {
	groups        map[string]string // path of the group by controller; "" is the key of version 2
	mounts        []cgroupMount
	rootIsOverlay bool // the root file system is an overlay, as in containers
}

type cgroupMount struct {
	point       string   // path below the root, without a leading slash
	root        string   // group that is visible at point
	controllers []string // controllers of version 1; nil for version 2
	v2          bool
}

// readCgroups reads proc/self/cgroup and proc/self/mountinfo. On a kernel without control groups, the result contains
// no groups and no mounts.
func readCgroups(root fs.FS) cgroups {
	c := cgroups{groups: map[string]string{}}
	list, _ := fs.ReadFile(root, "proc/self/cgroup")
	for _, line := range strings.Split(string(list), "\n") {
		field := strings.SplitN(line, ":", 3) // version 1: "4:cpu,cpuacct:/docker/1a2b", version 2: "0::/user.slice"
		if len(field) != 3 {
			continue
		}
		for _, controller := range strings.Split(field[1], ",") {
			c.groups[controller] = field[2]
		}
	}
	mounts, _ := fs.ReadFile(root, "proc/self/mountinfo")
	for _, line := range strings.Split(string(mounts), "\n") {
		c.addMount(line)
	}
	return c
}

// addMount parses a line like "35 31 0:32 /docker/1a2b /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory".
func (c *cgroups) addMount(line string) {
	before, after, ok := strings.Cut(line, " - ")
	place, kind := strings.Fields(before), strings.Fields(after)
	if !ok || len(place) < 5 || len(kind) < 3 {
		return
	}
	mount := cgroupMount{root: unescape(place[3]), point: strings.TrimPrefix(unescape(place[4]), "/")}
	switch kind[0] {
	case "cgroup2":
		mount.v2 = true
		c.mounts = append(c.mounts, mount)
	case "cgroup":
		mount.controllers = strings.Split(kind[2], ",")
		c.mounts = append(c.mounts, mount)
	case "overlay":
		c.rootIsOverlay = c.rootIsOverlay || mount.point == ""
	}
}

// unescape decodes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func (c cgroups) version() string {
	var v1, v2 bool
	for _, m := range c.mounts {
		v1, v2 = v1 || !m.v2, v2 || m.v2
	}
	switch {
	case v1 && v2:
		return "v1+v2"
	case v1:
		return "v1"
	case v2:
		return "v2"
	}
	return "none"
}

// mentions reports whether the path of a group contains word. It checks the paths in cgroup and in mountinfo.
func (c cgroups) mentions(word string) bool {
	for _, group := range c.groups {
		if strings.Contains(group, word) {
			return true
		}
	}
	for _, m := range c.mounts {
		if strings.Contains(m.root, word) {
			return true
		}
	}
	return false
}

// folders returns the folders that contain the limits of a controller: first that of the process's own group, then
// those of its parents. If the group is outside the mount (cgroup namespaces), the only folder is the mount itself.
func (c cgroups) folders(controller string) (list []string, v2 bool) {
	group, isV1 := c.groups[controller]
	if !isV1 {
		if group, v2 = c.groups[""]; !v2 {
			return nil, false
		}
	}
	for _, m := range c.mounts {
		if m.v2 != v2 || !v2 && !slices.Contains(m.controllers, controller) {
			continue
		}
		below, ok := strings.CutPrefix(path.Clean(group), strings.TrimSuffix(m.root, "/"))
		if !ok || below != "" && below[0] != '/' || strings.HasPrefix(group, "/..") {
			below = ""
		}
		for {
			list = append(list, path.Join(m.point, below))
			if below = strings.TrimSuffix(below, "/"); below == "" {
				return list, v2
			}
			below = path.Dir(below)
		}
	}
	return nil, v2
}

// Files of the CPU quota in the folder of a control group.
const (
	cpuMaxV2    = "cpu.max" // quota and period in us, such as "50000 100000" or "max 100000"; missing at the top
	cpuQuotaV1  = "cpu.cfs_quota_us"
	cpuPeriodV1 = "cpu.cfs_period_us"
)

// cpuQuota returns the smallest CPU quota of all levels, in CPUs.
func (c cgroups) cpuQuota(root fs.FS) (cpus float64, limited bool) {
	cpus = math.Inf(1)
	folders, v2 := c.folders("cpu")
	for _, folder := range folders {
		var quota, period string
		if v2 {
			line, _ := readLine(root, path.Join(folder, cpuMaxV2))
			quota, period, _ = strings.Cut(line, " ")
		} else {
			quota, _ = readLine(root, path.Join(folder, cpuQuotaV1)) // -1 means no quota
			period, _ = readLine(root, path.Join(folder, cpuPeriodV1))
		}
		q, err1 := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err1 == nil && err2 == nil && q > 0 && p > 0 && !math.IsInf(q, 0) {
			cpus = min(cpus, q/p)
		}
	}
	return cpus, !math.IsInf(cpus, 1)
}

// memoryLimit returns the smallest memory limit of all levels, in bytes.
func (c cgroups) memoryLimit(root fs.FS) (bytes int64, limited bool) {
	bytes = math.MaxInt64
	folders, v2 := c.folders("memory")
	file := "memory.limit_in_bytes" // without a limit, it contains a number near 2^63
	if v2 {
		file = "memory.max" // without a limit, it contains "max"
	}
	for _, folder := range folders {
		line, _ := readLine(root, path.Join(folder, file))
		if limit, err := strconv.ParseInt(line, 10, 64); err == nil && limit > 0 {
			bytes = min(bytes, limit)
		}
	}
	return bytes, bytes != math.MaxInt64
}
