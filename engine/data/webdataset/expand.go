package webdataset

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data/stored"
)

// maxShards is the largest number of shards that a pattern may name.
const maxShards = 1 << 20

// isShard reports whether the name of a file is that of a shard.
func isShard(name string) bool {
	name = strings.ToLower(name)
	return !strings.HasPrefix(name, ".") &&
		slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.zstd"},
			func(end string) bool { return strings.HasSuffix(name, end) })
}

const maxListLine = 64 << 10 // bytes

// fromList reads a list of patterns. The list may be a named pipe of another program, so it is read only once. fromList
// waits for the writer of the pipe until ctx ends.
func fromList(ctx context.Context, path string) ([]string, error) {
	f, err := openPipe(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })() // interrupts a blocked read
	var shards []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxListLine)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !filepath.IsAbs(line) && !stored.Remote(line) {
			line = filepath.Join(filepath.Dir(path), line)
		}
		list, err := braces(line, maxShards-len(shards))
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		shards = append(shards, list...)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, cmp.Or(context.Cause(ctx), err))
	}
	if len(shards) == 0 {
		return nil, fmt.Errorf("%s lists no shards", path)
	}
	return shards, nil
}

// openPipe opens a file that may be a named pipe. Opening a pipe blocks until a writer opens it, so a separate
// goroutine does this. If ctx ends first, the goroutine remains blocked.
func openPipe(ctx context.Context, path string) (*os.File, error) {
	type opened struct {
		file *os.File
		err  error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(path)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		return o.file, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the writer of %s: %w", path, context.Cause(ctx))
	}
}

// braces expands ranges {000..146} and alternatives {a,b}. The last pair of braces varies fastest. All numbers of a
// range have at least as many digits as the first one.
func braces(pattern string, most int) ([]string, error) {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		if strings.IndexByte(pattern, '}') >= 0 {
			return nil, fmt.Errorf("%.200q: } without {", pattern)
		}
		return []string{pattern}, nil
	}
	length := strings.IndexByte(pattern[open:], '}')
	if length < 0 || strings.IndexByte(pattern[open+1:open+length], '{') >= 0 {
		return nil, fmt.Errorf("%.200q: { without }, or { } within { }", pattern)
	}
	choices, err := choices(pattern[open+1:open+length], most)
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", pattern, err)
	}
	rest, err := braces(pattern[open+length+1:], most)
	if err != nil {
		return nil, err
	}
	if len(choices)*len(rest) > most {
		return nil, fmt.Errorf("%.200q expands to more than %d shards", pattern, most)
	}
	all := make([]string, 0, len(choices)*len(rest))
	for _, choice := range choices {
		for _, end := range rest {
			all = append(all, pattern[:open]+choice+end)
		}
	}
	return all, nil
}

// choices returns the expansion of the text between two braces.
func choices(text string, most int) ([]string, error) {
	first, last, isRange := strings.Cut(text, "..")
	if !isRange {
		return strings.Split(text, ","), nil
	}
	from, err1 := strconv.ParseUint(first, 10, 31)
	to, err2 := strconv.ParseUint(last, 10, 31)
	if err1 != nil || err2 != nil || to < from {
		return nil, fmt.Errorf("{%s}: want a range such as {000000..000146}", text)
	}
	if to-from >= uint64(most) {
		return nil, fmt.Errorf("{%s}: more than %d shards", text, most)
	}
	var list []string
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprintf("%0*d", len(first), n))
	}
	return list, nil
}
