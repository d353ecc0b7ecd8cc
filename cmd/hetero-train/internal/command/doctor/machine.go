package doctor

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/compute"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/version"
	"github.com/hetero-train/hetero-train/engine/platform"
	"github.com/hetero-train/hetero-train/nccl"
	"github.com/hetero-train/hetero-train/profiler/hardware"
	"github.com/hetero-train/hetero-train/profiler/system"
)

// machine contains facts about a machine, as one of its ranks sees them. Sizes are in bytes.
type machine struct {
	Rank     int    `json:"rank"`
	Ranks    int    `json:"ranks"`      // number of ranks of the run
	OwnRanks int    `json:"host_ranks"` // number of ranks of the run on this machine
	Machines int    `json:"machines"`   // number of machines of the run
	HostID   string `json:"host_id"`    // equal for all ranks of a machine

	Host    system.Host `json:"host"`
	Unknown string      `json:"unknown,omitempty"` // facts of Host that could not be read
	Program string      `json:"program"`

	Governor string `json:"governor,omitempty"` // frequency governor of the first CPU; "": unknown
	Driver   string `json:"frequency_driver,omitempty"`

	OpenFiles   *uint64 `json:"open_files"` // limits of this process; null: unknown
	LockedBytes *uint64 `json:"locked_bytes"`
	Addresses   *uint64 `json:"address_bytes"`
	Threads     string  `json:"threads,omitempty"`      // limit that is too low for the threads of a run; "": none
	ThreadsCure string  `json:"threads_cure,omitempty"` // limit that the user must raise, such as ulimit -u

	Shared *space  `json:"shared_memory"` // space of /dev/shm; null: there is none
	Spaces []space `json:"spaces"`        // space of the folders to which a run writes
	Clock  *bool   `json:"clock_follows_server"`
	RDMA   bool    `json:"rdma"` // the machine has RDMA adapters

	NameAddresses []string `json:"name_addresses"` // addresses to which the host's name resolves
	NameFault     string   `json:"name_fault,omitempty"`
	OwnAddress    string   `json:"own_address,omitempty"` // address for other machines; "": one machine

	Listen []listen `json:"listen"`

	Credentials []credential `json:"credentials,omitempty"`

	GPUs        []gpu          `json:"gpus"`
	NoGPU       string         `json:"no_gpu,omitempty"` // reason why the driver shows no GPU
	NVIDIA      bool           `json:"nvidia"`           // there is an NVIDIA GPU on the bus
	Module      bool           `json:"nvidia_module"`    // the kernel module of NVIDIA's driver is loaded
	GPUWarnings []string       `json:"gpu_warnings,omitempty"`
	NCCL        []nccl.Setting `json:"nccl"`
	NCCLNotes   []string       `json:"nccl_notes,omitempty"`
	NCCLFault   string         `json:"nccl_fault,omitempty"`
}

type gpu struct {
	Name   string `json:"name"`
	Driver string `json:"driver"`
	CUDA   string `json:"cuda"`
}

// space is the free space of a folder.
type space struct {
	What  string `json:"what"`
	Path  string `json:"path"`
	Total int64  `json:"total"`
	Free  int64  `json:"free"`
	Fault string `json:"fault,omitempty"` // reason why a run cannot write to the folder
}

// listen is a port on which a run with this configuration listens.
type listen struct {
	Key     string `json:"key"`
	Address string `json:"address"`
	Fault   string `json:"fault,omitempty"` // why a run cannot listen: port in use, or address not of this machine
}

// resolveTime is the time limit for the lookup of the host's own name.
const resolveTime = 5 * time.Second

// threadsOfARank is a low estimate of the number of threads of a rank. A rank on one core has about as many.
const threadsOfARank = 32

// look collects the facts about this machine. If there are other ranks, the caller must call k.Meet first.
func look(ctx context.Context, k *compute.Rank) machine {
	place := k.Process.Opts.Assignment
	m := machine{Rank: place.Rank, Ranks: max(place.WorldSize, 1), OwnRanks: max(place.LocalWorldSize, 1), Machines: 1,
		Program: version.Source()}
	var err error
	if m.Host, err = system.Detect(); err != nil {
		m.Unknown = err.Error()
	}
	m.HostID = m.Host.Name
	if k.Team != nil {
		m.HostID = k.Team.Group.Members()[place.Rank].Host
		m.Machines = len(k.Team.Hosts())
		if m.Machines > 1 {
			m.OwnAddress = k.Team.OwnAddress()
		}
	}
	root := os.DirFS("/")
	const policy = "sys/devices/system/cpu/cpu0/cpufreq/"
	m.Governor, m.Driver = line(root, policy+"scaling_governor"), line(root, policy+"scaling_driver")
	m.OpenFiles, m.LockedBytes = known(platform.FileLimit()), known(platform.LockLimit())
	m.Addresses = known(platform.AddressLimit())
	if limit, refused := system.ThreadsRefused(threadsOfARank * m.OwnRanks); refused {
		m.Threads, m.ThreadsCure = limit.String(), limit.Cure
	}
	if total, free, err := platform.Space("/dev/shm"); err == nil {
		m.Shared = &space{What: "shared memory", Path: "/dev/shm", Total: total, Free: free}
	}
	cfg := k.Process.Cfg
	if cache, err := os.UserCacheDir(); err == nil {
		m.Spaces = append(m.Spaces, spaceOf("cache", filepath.Join(cache, "hetero-train")))
	}
	m.Spaces = append(m.Spaces, spaceOf("experiment.output_dir", cfg.Experiment.OutputDir))
	if follows, ok := platform.ClockFollows(); ok {
		m.Clock = &follows
	}
	adapters, _ := fs.Glob(root, "sys/class/infiniband/*")
	m.RDMA = len(adapters) > 0
	m.resolve(ctx)
	m.probePorts(k)
	m.Credentials = probeCredentials(k)
	m.probeGPUs(root)
	settings, notes, err := nccl.Settle(cfg.NCCL.Variables(), k.Process.Opts.Env.Environ)
	m.NCCL, m.NCCLNotes = settings, notes
	if err != nil {
		m.NCCLFault = err.Error()
	}
	return m
}

func known(value uint64, ok bool) *uint64 {
	if !ok {
		return nil
	}
	return &value
}

func line(root fs.FS, name string) string {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// spaceOf returns the space of a folder. If the folder does not exist, it returns the space of the nearest parent
// folder that exists. It also tries to write to the folder.
func spaceOf(what, folder string) space {
	s := space{What: what, Path: folder}
	at, err := filepath.Abs(folder)
	for ; err == nil; at = filepath.Dir(at) {
		var info fs.FileInfo
		if info, err = os.Stat(at); err == nil || !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			if err == nil && !info.IsDir() {
				err = &fs.PathError{Op: "open", Path: at, Err: syscall.ENOTDIR}
			}
			break
		}
		err = nil
	}
	if err == nil {
		s.Total, s.Free, err = platform.Space(at)
	}
	if err == nil {
		err = writable(at)
	}
	if err != nil {
		s.Fault = err.Error()
	}
	return s
}

// writable returns an error if it cannot create and remove a file in a folder.
func writable(folder string) error {
	f, err := os.CreateTemp(folder, ".hetero-train-doctor-*")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// resolve looks up the addresses of the host's own name.
func (m *machine) resolve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, resolveTime)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, m.Host.Name)
	if err != nil {
		m.NameFault = err.Error()
	}
	m.NameAddresses = addresses
}

func join(address string, port int) string { return net.JoinHostPort(address, strconv.Itoa(port)) }

// loopback reports whether a host name or an address is only valid within this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// probePorts tries to listen on the ports that a run with this configuration would use. It omits the port of rank
// discovery if the ranks are connected, because this run itself then uses the port.
func (m *machine) probePorts(k *compute.Rank) {
	cfg := k.Process.Cfg
	var list []listen
	// Skip the port if one machine starts all ranks: they meet on any free port of the loopback interface.
	if p := cfg.Parallel; k.Team == nil && !loopback(p.MasterAddr) {
		list = append(list, listen{Key: "parallel.master_port", Address: join(p.MasterAddr, p.MasterPort)})
	}
	if cfg.Dashboard.Enabled && k.Team.Leads() {
		list = append(list, listen{Key: "dashboard.port", Address: join(cfg.Dashboard.Address, cfg.Dashboard.Port)})
	}
	if cfg.Metrics.Address != "" && k.Team.Leads() {
		list = append(list, listen{Key: "metrics.address", Address: cfg.Metrics.Address})
	}
	for i := range list {
		listener, err := net.Listen("tcp", list[i].Address)
		if err != nil {
			list[i].Fault = err.Error()
			continue
		}
		listener.Close() // ignore an error: nothing has connected
	}
	m.Listen = list
}

// probeGPUs searches for NVIDIA GPUs, both through the driver and on the bus.
func (m *machine) probeGPUs(root fs.FS) {
	gpus := hardware.Open()
	defer gpus.Close()
	for _, g := range gpus.All() {
		m.GPUs = append(m.GPUs, gpu{Name: g.Name, Driver: g.Driver, CUDA: g.CUDA})
	}
	m.NoGPU, m.GPUWarnings = gpus.Reason(), gpus.Warnings()
	m.Module = line(root, "sys/module/nvidia/version") != ""
	devices, _ := fs.Glob(root, "sys/bus/pci/devices/*")
	for _, d := range devices {
		const nvidia, display = "0x10de", "0x03" // class 0x03: display and 3D controllers
		if line(root, path.Join(d, "vendor")) == nvidia &&
			strings.HasPrefix(line(root, path.Join(d, "class")), display) {
			m.NVIDIA = true
		}
	}
}
