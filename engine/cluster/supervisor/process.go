package supervisor

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// drainTime limits the time for which the supervisor reads the output of an ended rank. Without a limit, a process that
// the rank left behind could hold the pipe open.
const drainTime = 2 * time.Second

// process is one rank.
type process struct {
	rank    int
	command *exec.Cmd
	end     *tail
	cause   *os.File // reading end of the pipe of ReportCause
	killing func(pid int) error

	mu     sync.Mutex
	reaped bool // the process id may now belong to another process

	said string // cause that the rank reported; set by wait

	account string // memory account that the rank reported; set by wait

	// Only the loop of Run uses the following fields.
	ended  bool
	told   bool   // the supervisor, not the user, sent SIGTERM or SIGKILL
	killed bool   // the supervisor sent SIGKILL
	doing  string // activity of the process when the time limit expired

	immortal bool // SIGKILL did not end the process
}

// start starts one rank. It must run on an OS thread that outlives the rank.
func (o *Options) start(local, port int, files rankFiles) (*process, error) {
	p := &process{rank: o.FirstRank + local, killing: o.kill, command: exec.Command(o.Command[0], o.Command[1:]...)}
	p.command.Dir = o.Dir
	words, cause, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start rank %d: open the pipe for the cause of a failure: %w", p.rank, err)
	}
	defer cause.Close() // only the rank may keep this end open
	p.cause, files.cause = words, cause
	p.command.Env = append(o.environment(local, port), files.environment()...)
	p.command.Stdout, p.command.Stderr, p.end = o.streams(local)
	p.command.SysProcAttr = attributes()
	p.command.WaitDelay = drainTime
	p.command.ExtraFiles = files.open()
	if err := p.command.Start(); err != nil {
		words.Close()
		return nil, fmt.Errorf("start rank %d: %w", p.rank, err)
	}
	if err := preferVictim(p.command.Process.Pid); err != nil { // the kernel then compares only memory use
		o.Log.Debug("cannot protect the supervisor from the kernel if memory runs out", "rank", p.rank, "error", err)
	}
	return p, nil
}

// rankFiles are the files that a rank inherits; nil: none.
type rankFiles struct{ listener, lifeline, cause *os.File }

func (f rankFiles) open() (files []*os.File) {
	for _, file := range []*os.File{f.listener, f.lifeline, f.cause} {
		if file != nil {
			files = append(files, file)
		}
	}
	return files
}

// environment returns the variables with the file descriptors.
func (f rankFiles) environment() (env []string) {
	number := firstExtraFile
	for _, one := range []struct {
		file *os.File
		name string
	}{{f.listener, ListenerVariable}, {f.lifeline, LifelineVariable}, {f.cause, CauseVariable}} {
		if one.file != nil {
			env = append(env, one.name+"="+strconv.Itoa(number))
			number++
		}
	}
	return env
}

func (o *Options) environment(local, port int) []string {
	env := slices.DeleteFunc(slices.Clone(o.Env), func(entry string) bool {
		return strings.HasPrefix(entry, ListenerVariable+"=") || strings.HasPrefix(entry, LifelineVariable+"=") ||
			strings.HasPrefix(entry, CauseVariable+"=")
	})
	set := func(name string, value int) { env = append(env, name+"="+strconv.Itoa(value)) }
	set("RANK", o.FirstRank+local)
	set("WORLD_SIZE", o.WorldSize)
	set("LOCAL_RANK", local)
	set("LOCAL_WORLD_SIZE", o.Ranks)
	env = append(env, "MASTER_ADDR="+o.MasterAddr)
	set("MASTER_PORT", port)
	// torchrun's store is not on this MASTER_PORT, even if torchrun started this process
	env = append(env, "TORCHELASTIC_USE_AGENT_STORE=False")
	if o.Threads > 0 {
		set("OMP_NUM_THREADS", Part(o.Threads, o.Ranks, local))
	}
	if o.RankEnv != nil {
		env = append(env, o.RankEnv(o.FirstRank+local)...)
	}
	return env
}

// wait returns when the process and its group have ended, and the output has been read.
func (p *process) wait() {
	awaitExit(p.command.Process.Pid)
	p.mu.Lock()
	p.killGroup() // the rank may have left processes behind
	p.mu.Unlock()
	_ = p.command.Wait() // ProcessState has the result; output that drainTime cuts off is not a failure
	p.account, p.said = readCause(p.cause)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reaped = true
}

// signal sends a signal to the process, not to its group.
func (p *process) signal(signal syscall.Signal) {
	_ = p.command.Process.Signal(signal) // if the process has ended, wait will report it
}

// kill ends the process and its group.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.killGroup()
	}
}

// killGroup kills the process group. The caller must hold p.mu, and the process must not be reaped.
func (p *process) killGroup() {
	_ = p.killing(p.command.Process.Pid) // an empty group is not a failure
}

// failure describes how the process ended. It returns nil for exit code 0.
func (p *process) failure() *RankError {
	status, ok := p.command.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || status.Exited() && status.ExitStatus() == 0 {
		return nil
	}
	e := &RankError{Rank: p.rank, PID: p.command.Process.Pid, Code: p.command.ProcessState.ExitCode(), Cause: p.said,
		Tail: p.end.String()}
	if status.Signaled() {
		e.Signal, e.Core = status.Signal(), status.CoreDump()
	}
	return e
}

// state describes the activity of a process that has not ended in time.
func (p *process) state() string {
	dir := fmt.Sprintf("/proc/%d", p.command.Process.Pid)
	own := taskState(dir)
	if own == "" {
		return ""
	}
	threads, _ := filepath.Glob(dir + "/task/*") // the pattern is valid
	blocked := slices.ContainsFunc(threads, func(thread string) bool { return taskState(thread) == "D" })
	switch {
	case blocked:
		return "it is blocked in the kernel, by a device or a file system"
	case own == "T", own == "t":
		return "it is stopped (SIGSTOP, or a debugger)"
	}
	return "it is running"
}

// taskState returns the state of a process or thread: the third field of its file stat, after the name in brackets. It
// returns "" if there is no such file.
func taskState(dir string) string {
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat[max(strings.LastIndex(string(stat), ")"), 0):]), " ")
	state, _, _ := strings.Cut(after, " ")
	return state
}
