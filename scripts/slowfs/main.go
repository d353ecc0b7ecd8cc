// Command slowfs mounts a folder at another place, read only, with a delay in each call, as on network storage. The
// delays of concurrent calls overlap, so slowfs does not limit the number of calls in flight. As with NFS, the kernel
// caches names and properties of files for 30 s, but not contents. slowfs needs /dev/fuse and the right to mount.
//
//	slowfs --delay 20ms FOLDER MOUNTPOINT
//
// After SIGUSR1, it prints the number of calls of each kind since the last SIGUSR1 as a line of JSON. SIGTERM unmounts.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// slow delays the calls of another file system.
type slow struct {
	fuse.RawFileSystem
	delay time.Duration

	mu    sync.Mutex
	calls map[string]int
}

func (s *slow) wait(kind string) {
	s.mu.Lock()
	s.calls[kind]++
	s.mu.Unlock()
	time.Sleep(s.delay)
}

// report prints and clears the numbers of calls.
func (s *slow) report() {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, _ := json.Marshal(s.calls) // a map of numbers
	fmt.Println(string(line))
	clear(s.calls)
}

func (s *slow) Lookup(cancel <-chan struct{}, header *fuse.InHeader, name string, out *fuse.EntryOut) fuse.Status {
	s.wait("lookup")
	return s.RawFileSystem.Lookup(cancel, header, name, out)
}

func (s *slow) GetAttr(cancel <-chan struct{}, input *fuse.GetAttrIn, out *fuse.AttrOut) fuse.Status {
	s.wait("getattr")
	return s.RawFileSystem.GetAttr(cancel, input, out)
}

func (s *slow) Readlink(cancel <-chan struct{}, header *fuse.InHeader) ([]byte, fuse.Status) {
	s.wait("readlink")
	return s.RawFileSystem.Readlink(cancel, header)
}

func (s *slow) Open(cancel <-chan struct{}, input *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	s.wait("open")
	status := s.RawFileSystem.Open(cancel, input, out)
	out.OpenFlags &^= fuse.FOPEN_PASSTHROUGH // otherwise the kernel reads the file without a call
	out.BackingID = 0
	return status
}

func (s *slow) Read(cancel <-chan struct{}, input *fuse.ReadIn, buf []byte) (fuse.ReadResult, fuse.Status) {
	s.wait("read")
	return s.RawFileSystem.Read(cancel, input, buf)
}

func (s *slow) OpenDir(cancel <-chan struct{}, input *fuse.OpenIn, out *fuse.OpenOut) fuse.Status {
	s.wait("opendir")
	return s.RawFileSystem.OpenDir(cancel, input, out)
}

func (s *slow) ReadDir(cancel <-chan struct{}, input *fuse.ReadIn, out *fuse.DirEntryList) fuse.Status {
	s.wait("readdir")
	return s.RawFileSystem.ReadDir(cancel, input, out)
}

func main() {
	delay := flag.Duration("delay", 0, "delay of each call")
	flag.Parse()
	if err := run(flag.Args(), *delay); err != nil {
		fmt.Fprintln(os.Stderr, "slowfs:", err)
		os.Exit(1)
	}
}

func run(args []string, delay time.Duration) error {
	if len(args) != 2 {
		return fmt.Errorf("got %d arguments, want a folder and a mount point", len(args))
	}
	root, err := fs.NewLoopbackRoot(args[0])
	if err != nil {
		return err
	}
	kept := 30 * time.Second
	s := &slow{RawFileSystem: fs.NewNodeFS(root, &fs.Options{EntryTimeout: &kept, AttrTimeout: &kept}), delay: delay,
		calls: map[string]int{}}
	server, err := fuse.NewServer(s, args[1], &fuse.MountOptions{Name: "slowfs", FsName: args[0],
		DirectMountStrict: true, DisableReadDirPlus: true, MaxBackground: 512, Options: []string{"ro"}})
	if err != nil {
		return fmt.Errorf("mount %s: %w", args[1], err)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for s1 := range signals {
			if s1 == syscall.SIGUSR1 {
				s.report()
			} else if err := server.Unmount(); err != nil {
				fmt.Fprintln(os.Stderr, "slowfs: unmount:", err)
			}
		}
	}()
	go func() {
		if server.WaitMount() == nil {
			fmt.Println("mounted")
		}
	}()
	server.Serve()
	return nil
}
