package cifar

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
)

const (
	side       = 32          // pixels
	plane      = side * side // bytes of one channel
	pixelBytes = 3 * plane

	maxRecords    = 100_000 // largest number of records per file
	maxNamesBytes = 64 << 10
)

// block holds the images of one file.
type block struct {
	pix    []byte  // (N, 32, 32, 3)
	labels []uint8 // (N)
}

// files collects the required files from an archive or a folder.
type files struct {
	v       Variant
	blocks  map[string]block
	classes []string
}

func (v Variant) newFiles() *files { return &files{v: v, blocks: map[string]block{}} }

// names returns the names of the required files.
func (f *files) names() []string {
	return append([]string{f.v.namesFile, f.v.testFile}, f.v.trainFiles...)
}

// read reads the file if it is required.
func (f *files) read(name string, r io.Reader) error {
	for _, wanted := range f.names() {
		if name != wanted {
			continue
		}
		if _, twice := f.blocks[name]; twice || name == f.v.namesFile && f.classes != nil {
			return fmt.Errorf("%s appears twice", name)
		}
		var err error
		if name == f.v.namesFile {
			f.classes, err = parseNames(r, f.v.classes)
		} else {
			var b block
			b, err = parseRecords(r, f.v.labelBytes, f.v.classes)
			f.blocks[name] = b
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// complete returns an error that lists the missing files.
func (f *files) complete() error {
	var missing []string
	for _, name := range f.names() {
		if _, ok := f.blocks[name]; !ok && !(name == f.v.namesFile && f.classes != nil) {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		return fmt.Errorf("no %s", strings.Join(missing, ", "))
	}
	return nil
}

// parseNames reads class names, one per line.
func parseNames(r io.Reader, classes int) ([]string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxNamesBytes+1))
	if err != nil {
		return nil, err
	}
	names := strings.Fields(string(text))
	if len(text) > maxNamesBytes || len(names) != classes {
		return nil, fmt.Errorf("got %d class names of %d bytes, want %d names of at most %d bytes", len(names),
			len(text), classes, maxNamesBytes)
	}
	return names, nil
}

// parseRecords reads records. A record consists of labelBytes label bytes, then the red, green and blue planes of an
// image. The last label byte is the class.
func parseRecords(r io.Reader, labelBytes, classes int) (block, error) {
	var b block
	record := make([]byte, labelBytes+pixelBytes)
	for n := 0; ; n++ {
		got, err := io.ReadFull(r, record)
		if err == io.EOF {
			break
		}
		if err == io.ErrUnexpectedEOF {
			return block{}, fmt.Errorf("record %d has %d bytes, want %d", n, got, len(record))
		}
		if err != nil {
			return block{}, err
		}
		if n == maxRecords {
			return block{}, fmt.Errorf("more than %d records", maxRecords)
		}
		label := record[labelBytes-1]
		if int(label) >= classes {
			return block{}, fmt.Errorf("record %d has label %d, want below %d", n, label, classes)
		}
		b.labels = append(b.labels, label)
		b.pix = appendInterleaved(b.pix, record[labelBytes:])
	}
	if len(b.labels) == 0 {
		return block{}, errors.New("no records")
	}
	return b, nil
}

// appendInterleaved converts an image from (3, 32, 32) to (32, 32, 3) and appends it.
func appendInterleaved(pix, planes []byte) []byte {
	at := len(pix)
	for _, records := range []int{64, 10_000, 50_000, maxRecords} {
		// the official files contain 10,000 or 50,000 records
		if cap(pix) < at+pixelBytes && at < records*pixelBytes {
			pix = append(make([]byte, 0, records*pixelBytes), pix...)
		}
	}
	pix = pix[:at+pixelBytes]
	out, red, green, blue := pix[at:], planes[:plane], planes[plane:2*plane], planes[2*plane:3*plane]
	for i := range plane {
		o := out[3*i:][:3]
		o[0], o[1], o[2] = red[i], green[i], blue[i]
	}
	return pix
}

// dataset is one part of the data set, in memory.
type dataset struct {
	blocks  []block // in order
	classes []string
}

func (d *dataset) Len() int {
	n := 0
	for _, b := range d.blocks {
		n += len(b.labels)
	}
	return n
}

func (d *dataset) Classes() []string { return d.classes }

func (d *dataset) Label(i int) int {
	b, k := d.find(i)
	return int(b.labels[k])
}

// find returns the block that contains sample i, and the index of the sample within this block.
func (d *dataset) find(i int) (*block, int) {
	for k := range d.blocks {
		if i < len(d.blocks[k].labels) {
			return &d.blocks[k], i
		}
		i -= len(d.blocks[k].labels)
	}
	panic("cifar: sample index out of range")
}

func (d *dataset) NewReader() (data.Reader, error) { return reader{d}, nil }

type reader struct{ d *dataset }

func (reader) Close() error { return nil }

func (r reader) Read(i int, _ data.Sizer, img *data.Image) error {
	b, k := r.d.find(i)
	pix := b.pix[k*pixelBytes:][:pixelBytes:pixelBytes]
	*img = data.Image{Pix: pix, Width: side, Height: side, FullWidth: side, FullHeight: side, Contents: pix}
	return nil
}
