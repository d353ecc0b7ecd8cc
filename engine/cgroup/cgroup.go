package cgroup

import (
	"io/fs"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Groups describes the control groups of this process.
type Groups struct {
	groups        map[string]string // path of the group of each controller; the key of version 2 is ""
	mounts        []mount
	RootIsOverlay bool // the root file system is an overlay, as in containers
}

type mount struct {
	point       string   // path of the mount point, without a leading slash
	root        string   // path of the control group that is mounted at point
	controllers []string // controllers of version 1; nil for version 2
	v2          bool
}

// Read reads proc/self/cgroup and proc/self/mountinfo. On a kernel without control groups, the result contains
// no groups and no mounts.
func Read(root fs.FS) Groups {
	c := Groups{groups: map[string]string{}}
	list, _ := fs.ReadFile(root, "proc/self/cgroup")
	c.addGroups(string(list))
	mounts, _ := fs.ReadFile(root, "proc/self/mountinfo")
	for _, line := range strings.Split(string(mounts), "\n") {
		c.addMount(line)
	}
	return c
}

// addGroups parses the lines of proc/PID/cgroup.
func (c *Groups) addGroups(list string) {
	for _, line := range strings.Split(list, "\n") {
		field := strings.SplitN(line, ":", 3) // Version 1: "4:cpu,cpuacct:/docker/1a2b", version 2: "0::/user.slice"
		if len(field) != 3 {
			continue
		}
		for _, controller := range strings.Split(field[1], ",") {
			c.groups[controller] = field[2]
		}
	}
}

// addMount parses a line like "35 31 0:32 /docker/1a2b /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory".
func (c *Groups) addMount(line string) {
	before, after, ok := strings.Cut(line, " - ")
	place, kind := strings.Fields(before), strings.Fields(after)
	if !ok || len(place) < 5 || len(kind) < 3 {
		return
	}
	m := mount{root: unescape(place[3]), point: strings.TrimPrefix(unescape(place[4]), "/")}
	switch kind[0] {
	case "cgroup2":
		m.v2 = true
		c.mounts = append(c.mounts, m)
	case "cgroup":
		m.controllers = strings.Split(kind[2], ",")
		c.mounts = append(c.mounts, m)
	case "overlay":
		c.RootIsOverlay = c.RootIsOverlay || m.point == ""
	}
}

// unescape decodes the octal escapes of mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

func (c Groups) Version() string {
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

// Mentions reports whether the path of a group contains word. It checks the paths in cgroup and in mountinfo.
func (c Groups) Mentions(word string) bool {
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

// Folders returns the folders that contain the limits of a controller: first that of the process's own group, then
// those of its parents. If the group is outside the mount (cgroup namespaces), the only folder is the mount itself.
func (c Groups) Folders(controller string) (list []string, v2 bool) {
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
		below, _ := m.below(group)
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

// below returns the path of a group relative to the group of the mount. inside is false if the group is outside the
// mount.
func (m mount) below(group string) (below string, inside bool) {
	below, inside = strings.CutPrefix(path.Clean(group), strings.TrimSuffix(m.root, "/"))
	if !inside || below != "" && below[0] != '/' || strings.HasPrefix(group, "/..") {
		return "", false
	}
	return below, true
}

// visible reports whether the process's own group of a controller is inside the mount that Folders uses.
func (c Groups) visible(controller string, v2 bool) bool {
	group := c.groups[controller]
	if v2 {
		group = c.groups[""]
	}
	for _, m := range c.mounts {
		if m.v2 == v2 && (v2 || slices.Contains(m.controllers, controller)) {
			_, inside := m.below(group)
			return inside
		}
	}
	return false
}

// Files of the CPU quota in the folder of a control group.
const (
	CPUMaxV2    = "cpu.max" // quota and period in us, such as "50000 100000" or "max 100000"; missing in the root group
	CPUQuotaV1  = "cpu.cfs_quota_us"
	CPUPeriodV1 = "cpu.cfs_period_us"
)

// CPUQuota returns the smallest CPU quota of the process's own group and its parents, in CPUs.
func (c Groups) CPUQuota(root fs.FS) (cpus float64, limited bool) {
	cpus = math.Inf(1)
	folders, v2 := c.Folders("cpu")
	for _, folder := range folders {
		var quota, period string
		if v2 {
			text, _ := line(root, path.Join(folder, CPUMaxV2))
			quota, period, _ = strings.Cut(text, " ")
		} else {
			quota, _ = line(root, path.Join(folder, CPUQuotaV1)) // -1 means no quota
			period, _ = line(root, path.Join(folder, CPUPeriodV1))
		}
		q, err1 := strconv.ParseFloat(quota, 64)
		p, err2 := strconv.ParseFloat(period, 64)
		if err1 == nil && err2 == nil && q > 0 && p > 0 && !math.IsInf(q, 0) {
			cpus = min(cpus, q/p)
		}
	}
	return cpus, !math.IsInf(cpus, 1)
}

// line returns the first line of a file.
func line(root fs.FS, name string) (string, error) {
	text, err := fs.ReadFile(root, name)
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(first), err
}
