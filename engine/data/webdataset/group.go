package webdataset

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/hetero-train/hetero-train/engine/data/archive"
	"github.com/hetero-train/hetero-train/engine/data/images"
	"github.com/hetero-train/hetero-train/engine/data/layout"
	"github.com/hetero-train/hetero-train/engine/data/pyjson"
)

const (
	maxLabelBytes = 256       // largest size of a class name or number, in bytes
	maxJSONBytes  = 1 << 20   // largest size of a .json member, in bytes
	maxNamesBytes = 256 << 20 // largest total size of all keys and labels of a shard, in bytes
)

// index describes the samples of a shard. Its fields are exported so that an index can be stored.
type index struct {
	Layout  archive.Layout
	Keys    []string // keys of the samples, in the order of the shard
	Ends    []string // extension of each image, without the dot
	Offsets []int64  // byte offset of each image in the plain tar
	Sizes   []int32  // size of each image in bytes
	Labels  []int32  // label of each sample, as an index into Texts
	Texts   []string // distinct labels, as written in the shard
	Ignored int      // number of samples without an image
	Faults  []Fault  // samples that are left out, in the order of the shard
	Cut     string   // reason why the rest of the shard is missing; "" if the shard is complete
}

// Fault is a sample that cannot be used.
type Fault struct{ Key, Reason string }

// grouper combines the members of a shard into samples.
type grouper struct {
	out   index
	texts map[string]int32
	seen  map[keyHash]struct{} // hashes of the keys of all samples
	names int64                // total size of stored keys and labels, in bytes

	open     bool
	key      string
	image    archive.Member
	imageEnd string // extension of the image; "" until an image is found
	another  string // extension of a second image with dots in its extension, if the sample has no other image
	label    string
	priority int   // source of the label, as an index into labelEnds; len(labelEnds) for dottedLabel; noLabel
	fault    error // error of the file with extension dottedLabel
	broken   error // reason why the sample cannot be used
}

// keyHash is the first half of a SHA-256. Keys are hashed because they may be long. The hash is cryptographic because
// shards are untrusted.
type keyHash [sha256.Size / 2]byte

func hashKey(key string) keyHash {
	sum := sha256.Sum256([]byte(key))
	return keyHash(sum[:sha256.Size/2])
}

var labelEnds = []string{"cls", "json", "txt"}

// dottedLabel is the last part of an extension with dots, such as output.cls. Such a file provides the label if no file
// with an extension of labelEnds does.
const dottedLabel = "cls"

const noLabel = 1 << 30

// isImage reports whether an extension without dots is that of an image.
func isImage(end string) bool { return images.IsEnding(end) }

// usual reports whether an extension is that of a usual format. Usual formats have precedence, because shards may use
// other formats for masks and depth.
func usual(end string) bool { return slices.Contains([]string{"jpg", "jpeg", "png", "webp"}, end) }

func newGrouper() *grouper {
	return &grouper{texts: map[string]int32{}, seen: map[keyHash]struct{}{}}
}

// split splits the name of a member into key and extension.
func split(name string) (key, end string) {
	base := strings.LastIndexByte(name, '/') + 1
	dot := strings.IndexByte(name[base:], '.')
	if dot < 0 {
		return name, ""
	}
	return name[:base+dot], strings.ToLower(name[base+dot+1:])
}

// hidden reports whether a member is ignored because its name belongs to a storage system or to the whole shard.
func hidden(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(part, "__") && strings.HasSuffix(part, "__") {
			return true
		}
	}
	return layout.System(name)
}

// add processes the next member.
func (g *grouper) add(m archive.Member, contents io.Reader) error {
	if m.Folder || hidden(m.Name) {
		return nil
	}
	key, end := split(m.Name)
	if end == "" {
		return nil
	}
	if !g.open || key != g.key {
		if err := g.finish(); err != nil {
			return err
		}
		g.open, g.key, g.imageEnd, g.another, g.label, g.priority, g.fault, g.broken = true, key, "", "", "", noLabel,
			nil, nil
		if _, seen := g.seen[hashKey(key)]; seen {
			g.breaks(fmt.Errorf("sample %.200q appears twice, or its files are not consecutive: pack the shard again with tar --sort=name",
				key))
		}
	}
	last := end[strings.LastIndexByte(end, '.')+1:]
	switch {
	case isImage(last):
		g.breaks(g.addImage(m, end))
		return nil
	case last == dottedLabel && last != end:
		return g.addDottedLabel(m, contents)
	}
	for priority, known := range labelEnds {
		if end != known {
			continue
		}
		if priority == g.priority {
			g.breaks(fmt.Errorf("sample %.200q has two files .%s", key, end))
		}
		if priority < g.priority {
			label, err := readLabel(end, m.Size, contents)
			if errors.As(err, new(*unreadableError)) {
				return err
			}
			if err != nil {
				g.breaks(fmt.Errorf("label %.200q: %w", m.Name, err))
			}
			if label != "" {
				g.label, g.priority = label, priority
			}
		}
	}
	return nil
}

// breaks records the first reason why the open sample cannot be used.
func (g *grouper) breaks(err error) {
	if g.broken == nil {
		g.broken = err
	}
}

// unreadableError is the error of a shard that cannot be read. It is not an error of a sample.
type unreadableError struct{ error }

func (e *unreadableError) Unwrap() error { return e.error }

// addImage processes an image. An extension without dots has precedence over one with dots, such as input.jpg.
func (g *grouper) addImage(m archive.Member, end string) error {
	switch dotted := strings.Contains(end, "."); {
	case !dotted && g.imageEnd != "" && usual(end) && !usual(g.imageEnd):
		// this image replaces the other one, such as a mask
	case !dotted && usual(g.imageEnd) && !usual(end):
		return nil
	case dotted && strings.Contains(g.imageEnd, "."):
		g.another = end
		return nil
	case dotted && g.imageEnd != "":
		return nil
	case !dotted && g.imageEnd != "" && !strings.Contains(g.imageEnd, "."):
		return fmt.Errorf("sample %.200q has two images, .%s and .%s", g.key, g.imageEnd, end)
	case m.Size > math.MaxInt32:
		return fmt.Errorf("image %.200q has %d bytes, want less than 2 GiB", m.Name, m.Size)
	}
	g.image, g.imageEnd, g.another = m, end, ""
	return nil
}

// addDottedLabel processes a file with extension dottedLabel. The method finish reports errors of this file later,
// because another file may provide the label.
func (g *grouper) addDottedLabel(m archive.Member, contents io.Reader) error {
	switch {
	case g.priority == len(labelEnds) || g.fault != nil:
		g.fault = fmt.Errorf("sample %.200q has several files .%s whose extensions have dots", g.key, dottedLabel)
	case g.priority > len(labelEnds):
		label, err := readLabel(dottedLabel, m.Size, contents)
		if errors.As(err, new(*unreadableError)) {
			return err
		}
		if err != nil {
			g.fault = fmt.Errorf("label %.200q: %w", m.Name, err)
		}
		g.label, g.priority = label, len(labelEnds)
	}
	return nil
}

// readLabel reads the label from a file. It returns "" if a .json file contains no label.
func readLabel(end string, size int64, contents io.Reader) (string, error) {
	most := int64(maxLabelBytes)
	if end == "json" {
		most = maxJSONBytes
	}
	if size > most {
		if end == "txt" {
			return "", nil // the text is a caption rather than a label
		}
		return "", fmt.Errorf("%d bytes, want at most %d", size, most)
	}
	text, err := io.ReadAll(contents)
	if err != nil {
		return "", &unreadableError{err}
	}
	if end == "json" {
		return jsonLabel(text)
	}
	return cleanLabel(string(text))
}

// cleanLabel returns an error unless a label is one line of printable text. Labels appear on terminals and in reports.
func cleanLabel(text string) (string, error) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxLabelBytes || !utf8.ValidString(text) ||
		strings.ContainsFunc(text, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return "", fmt.Errorf("got %.100q, want a number, or a name of one line with at most %d bytes", text,
			maxLabelBytes)
	}
	return text, nil
}

func jsonLabel(text []byte) (string, error) {
	var fields map[string]json.RawMessage
	if err := pyjson.Unmarshal(text, &fields); err != nil {
		return "", err
	}
	for _, name := range []string{"label", "cls", "class"} {
		raw, ok := fields[name]
		if !ok || string(raw) == "null" {
			continue
		}
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return cleanLabel(s)
		}
		if _, err := strconv.ParseInt(string(raw), 10, 64); err != nil {
			return "", fmt.Errorf("field %q: got %.100s, want a whole number or a string", name, raw)
		}
		return string(raw), nil
	}
	return "", nil
}

// finish completes the current sample.
func (g *grouper) finish() error {
	if !g.open {
		return nil
	}
	g.open = false
	if err := g.complete(); err != nil {
		reason := err.Error()
		g.out.Faults = append(g.out.Faults, Fault{g.key, reason})
		g.names += int64(len(g.key) + len(reason))
		return g.checkNames()
	}
	if g.imageEnd == "" {
		g.out.Ignored++
		return nil
	}
	return g.store()
}

// complete returns an error if the open sample has an image, but cannot be used.
func (g *grouper) complete() error {
	const dots = "; the key of a sample ends at the first dot of a file's name: rename the files if the key itself has dots"
	switch {
	case g.broken != nil:
		return g.broken
	case g.imageEnd == "":
		return nil
	case g.another != "":
		return fmt.Errorf("sample %.200q has several images, .%s and .%s%s", g.key, g.imageEnd, g.another, dots)
	case g.priority == len(labelEnds) && g.fault != nil:
		return fmt.Errorf("%w%s", g.fault, dots)
	case g.priority == noLabel:
		return fmt.Errorf("sample %.200q has no label next to its image: want .cls, .json with \"label\", or .txt; the files of a sample must be consecutive: pack the shard again with tar --sort=name",
			g.key)
	}
	return nil
}

func (g *grouper) checkNames() error {
	if g.names > maxNamesBytes {
		return fmt.Errorf("the names of the samples have more than %d MiB: %w", maxNamesBytes>>20, archive.ErrRefused)
	}
	return nil
}

// store adds the open sample to the index.
func (g *grouper) store() error {
	g.seen[hashKey(g.key)] = struct{}{}
	g.names += int64(len(g.key))
	text, ok := g.texts[g.label]
	if !ok {
		g.names += int64(len(g.label))
		text = int32(len(g.out.Texts))
		g.texts[g.label] = text
		g.out.Texts = append(g.out.Texts, g.label)
	}
	if err := g.checkNames(); err != nil {
		return err
	}
	o := &g.out
	o.Keys, o.Ends = append(o.Keys, g.key), append(o.Ends, g.imageEnd)
	o.Offsets, o.Sizes = append(o.Offsets, g.image.Offset), append(o.Sizes, int32(g.image.Size))
	o.Labels = append(o.Labels, text)
	return nil
}

// index returns the index of the shard. All members must have been added.
func (g *grouper) index(l archive.Layout, cut *archive.CutError) (*index, error) {
	last := len(g.out.Faults)
	if cut != nil { // some files of the open sample may be missing
		g.open = false
		g.out.Cut = cut.Error()
	} else if err := g.finish(); err != nil {
		return nil, err
	}
	if l.Unmarked && len(g.out.Faults) > last {
		g.out.Cut = fmt.Sprintf("the archive was cut: it has no end mark, and its last sample %.200q is incomplete (%s)",
			g.key, g.out.Faults[last].Reason)
		g.out.Faults = g.out.Faults[:last]
	}
	switch {
	case len(g.out.Keys) > 0:
	case cut != nil:
		return nil, cut
	case g.out.Cut != "":
		return nil, errors.New(g.out.Cut)
	case len(g.out.Faults) > 0:
		return nil, errors.New(g.out.Faults[0].Reason)
	default:
		return nil, errors.New("no samples: want files KEY.jpg and KEY.cls")
	}
	g.out.Layout = l
	return &g.out, nil
}
