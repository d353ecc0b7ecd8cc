package webdataset

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// maxShards is the largest number of shards that a pattern may name.
const maxShards = 1 << 20

// isShard reports whether the name of a file is that of a shard.
func isShard(name string) bool {
	name = strings.ToLower(name)
	return !strings.HasPrefix(name, ".") && slices.ContainsFunc([]string{".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.zstd"},
		func(end string) bool { return strings.HasSuffix(name, end) })
}

const maxListLine = 64 << 10 // bytes

// fromList reads a list of patterns.
func fromList(path string) ([]string, error) {
	// The list may be a pipe from another program, so it is read only once. The open of a pipe without a writer would block,
	// and then no signal would end the program.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var shards []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxListLine)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(filepath.Dir(path), line)
		}
		list, err := braces(line, maxShards-len(shards))
		if err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		shards = append(shards, list...)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(shards) == 0 {
		return nil, fmt.Errorf("%s lists no shards", path)
	}
	return shards, nil
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
