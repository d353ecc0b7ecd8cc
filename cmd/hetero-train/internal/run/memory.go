package run

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/assembly"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/logs"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/process"
	"github.com/hetero-train/hetero-train/engine/cluster/supervisor"
	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/experiment"
	"github.com/hetero-train/hetero-train/engine/memory"
	"github.com/hetero-train/hetero-train/profiler/runtime"
)

// keepToMemory applies the memory account of the replica to this process. The cache of the data set and Go's heap get
// the remaining memory. The supervisor gets the account, because it explains why the kernel may kill this rank. Then
// keepToMemory starts to watch the limit.
func (tr *training) keepToMemory(ctx context.Context) error {
	account := tr.run.Replica.Account()
	tr.run.GrantCache()
	images.RestartDecoderBytes() // forget the memory of the decoders that hashed the samples
	tr.rank.BoundHeap(account)
	if account.Limit.Bytes == 0 {
		return nil
	}
	if soft := tr.rank.HostLimit(); soft.Hard > 0 && account.Limit.Hard == 0 && account.HostBytes() > soft.Bytes {
		tr.process.Opts.LogOf(logs.ComponentTrainer).Warn(
			"this rank needs more than the memory that is available now, so the machine may swap: lower data.batch_size, raise train.grad_accumulation, or end other programs",
			"planned", memory.Size(account.HostBytes()), "available", memory.Size(soft.Bytes), "possible",
			memory.Size(soft.Hard))
	}
	debug.FreeOSMemory() // the memory of initial values and imported weights
	if err := tr.tellSupervisor(account); err != nil {
		tr.process.Opts.Log.Warn("the supervisor does not get the planned memory of this rank", "error", err)
	}
	watched, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tr.watchMemory(watched, account)
	}()
	tr.process.Later(func() error { stop(); <-ended; return nil })
	return nil
}

// tellSupervisor sends the memory account of this rank, and the largest share that fits, to the supervisor.
func (tr *training) tellSupervisor(account memory.Account) error {
	if tr.rank.Team == nil {
		return nil // no process of this program started this rank
	}
	return supervisor.ReportMemory(tr.process.Opts.Env.Environ,
		fmt.Sprintf("rank %d could use %s, and planned %s, with which at most %d samples of a micro-batch fit; lower data.batch_size, raise train.grad_accumulation, or raise the limit",
			tr.rank.Team.Place.Rank, memory.Size(account.Limit.Bytes), account, account.Samples))
}

// recordMemory writes the planned memory of all ranks into the folder of logs. A file that cannot be written is a
// warning, as for other records.
func (tr *training) recordMemory(ctx context.Context) error {
	own := runtime.RankMemory{Account: tr.run.Replica.Account(), MeasuredOf: tr.rank.MeasuredMemory()}
	ranks, err := process.GatherAll(ctx, tr.rank.Team, "planned memory", "planned memory of rank", own)
	if err != nil {
		return err
	}
	if !tr.rank.Team.Leads() {
		return nil
	}
	file := runtime.Memory{Ranks: ranks, Start: tr.run.Folder.Start()}
	if tr.resume != nil {
		file.Step = tr.resume.Step
	}
	text, err := json.Marshal(file)
	if err != nil {
		return err
	}
	path := filepath.Join(tr.run.Folder.LogDir(), runtime.MemoryFile)
	if err := experiment.ReplaceText(path, append(text, '\n')); err != nil {
		_ = os.Remove(path) // an old file of an earlier process; if it remains, readers recognise it by Start
		tr.process.Opts.LogOf(logs.ComponentProfiler).Warn("the planned memory of the ranks is not recorded",
			"error", err)
	}
	return nil
}

// memoryInterval is the time between two readings of the use of memory.
const memoryInterval = time.Second

// watchMemory logs each of two warnings at most once. The first: memory is almost used up, so the kernel may kill or
// slow down processes. The second: image decoders, the cache of images and all other parts together exceed the limit.
func (tr *training) watchMemory(ctx context.Context, account memory.Account) {
	gauge := memory.NewGauge(memory.System())
	tick := time.NewTicker(memoryInterval)
	defer tick.Stop()
	planned := account.HostBytes() + memory.Sum(account.Optional)
	larger, scarce := false, false // whether each warning was logged
	for !larger || !scarce {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, used := images.DecoderBytes(); !larger {
			if over := overrun(account, used, &tr.run.Data.Cache); over > 0 {
				larger = true
				tr.warnOfImages(account, used, over)
			}
		}
		pressure, known := gauge.Pressure()
		resident, _ := memory.Resident(memory.System(), 0)
		if scarce || !known || !pressure.Near(resident, planned) {
			continue
		}
		scarce = true
		kernel := "kill a process"
		if pressure.Throttles() {
			kernel = "slow down this run"
		}
		tr.process.Opts.LogOf(logs.ComponentTrainer).Warn(
			"memory is almost used up, and the kernel will "+kernel+" when it is: lower data.batch_size, raise train.grad_accumulation, or raise the limit",
			"limit", memory.Size(pressure.Limit), "limit_from", pressure.Source, "used", memory.Size(pressure.Used),
			"used_by_this_rank", memory.Size(resident), "planned_for_this_rank", memory.Size(planned))
	}
}

// overrun finds memory for the image decoders, which use this many bytes. It first takes the memory that the account
// leaves free, then the unused part of the cache of decoded images. It returns the bytes by which the rank may still
// exceed its limit. The cache keeps its images, because batches may refer to them.
func overrun(a memory.Account, used int64, cache *data.Budget) (bytes int64) {
	if used == 0 {
		return 0
	}
	left := a.Limit.Bytes - a.HostBytes() - memory.Sum(a.Optional)
	return cache.Reserve(max(used-left, 0))
}

// warnOfImages warns that a rank whose image decoders use this many bytes exceeds its memory limit by over bytes.
func (tr *training) warnOfImages(a memory.Account, used, over int64) {
	others := a.HostBytes()
	for _, p := range a.Optional {
		if p.Name != assembly.DataCache {
			others += p.Bytes
		}
	}
	tr.process.Opts.LogOf(logs.ComponentTrainer).Warn(
		"image decoders, the cache of decoded images and the other parts of this rank together need more memory than it may use: store smaller images, lower data.workers or data.batch_size, or raise the limit",
		"needed", memory.Size(a.Limit.Bytes+over), "limit", memory.Size(a.Limit.Bytes), "limit_from", a.Limit.Source,
		"image_decoders", memory.Size(used), "cached_images", memory.Size(tr.run.Data.Cache.Held()), "other_parts",
		memory.Size(others))
}
