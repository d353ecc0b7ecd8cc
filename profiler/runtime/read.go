package runtime

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/hetero-train/hetero-train/engine/regular"
)

const (
	// maxLineBytes is much larger than any record.
	maxLineBytes = 1 << 20
	// Lines of more than maxLineBytes are read in parts. A file with more than maxParts such parts is refused: it may
	// be a sparse file, which would take minutes to read.
	maxParts = 256
)

// ReadMetrics reads the metric records of a run that is finished, running or killed. It skips lines that are not
// records and returns their number: 0 in a valid file, 1 after a partial write. If the file is a JSON array in another
// layout, it is read up to the first syntax error.
func ReadMetrics(path string) (records []Record, damaged int, err error) {
	file, _, err := regular.Open(path)
	if err != nil {
		return nil, 0, fmt.Errorf("read metrics: %w", err)
	}
	defer file.Close()
	closed, err := eachLine(file, func(line []byte) {
		var record Record
		if !record.parse(line) && json.Unmarshal(line, &record) != nil {
			damaged++
			return
		}
		records = append(records, record)
	})
	if errors.Is(err, errLayout) || err == nil && damaged > 0 {
		// The file may be in another layout, because another program has reformatted the array.
		all, sound, arrayErr := readArray(file)
		if sound || errors.Is(err, errLayout) {
			records, damaged, closed, err = all, 0, sound, arrayErr
		}
	}
	if err != nil {
		return records, damaged, fmt.Errorf("read metrics %s: %w", path, err)
	}
	if !closed && damaged == 0 {
		damaged = 1
	}
	return records, damaged, nil
}

// EachMetric calls visit with every record that ReadMetrics would return. It keeps at most one record in memory. It
// returns an error when ctx is canceled.
func EachMetric(ctx context.Context, path string, visit func(*Record)) (damaged int, err error) {
	file, _, err := regular.Open(path)
	if err != nil {
		return 0, fmt.Errorf("read metrics: %w", err)
	}
	defer file.Close()
	var record Record
	found := false
	closed, err := eachLine(until{ctx, file}, func(line []byte) {
		if !record.parse(line) && json.Unmarshal(line, &record) != nil {
			damaged++
			return
		}
		found = true
		visit(&record)
	})
	if !found && (errors.Is(err, errLayout) || err == nil && damaged > 0) { // the file may have another layout
		records, damaged, err := ReadMetrics(path)
		for i := range records {
			visit(&records[i])
		}
		return damaged, err
	}
	if err != nil {
		return damaged, fmt.Errorf("read metrics %s: %w", path, err)
	}
	if !closed && damaged == 0 {
		damaged = 1
	}
	return damaged, nil
}

// until is a reader whose Read fails after a context is canceled.
type until struct {
	ctx  context.Context
	file io.Reader
}

func (u until) Read(p []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.file.Read(p)
}

// errLayout reports that a file does not contain one record per line.
var errLayout = errors.New("not an array with one record per line")

// eachLine calls record with the text of every line that should be a record, without the comma at its end. The text
// is valid only during the call. closed reports whether the array is complete: the closing bracket is the last line,
// all lines except the last record end with a comma, and no line is too long.
func eachLine(file io.Reader, record func(line []byte)) (closed bool, err error) {
	in := bufio.NewReaderSize(file, maxLineBytes)
	sound, parts := true, 0
	bracket, comma := false, true // comma: the next record may start
	for first := true; ; first = false {
		line, readErr := in.ReadSlice('\n')
		if readErr != nil && readErr != io.EOF && readErr != bufio.ErrBufferFull {
			return false, readErr
		}
		if readErr == bufio.ErrBufferFull {
			sound = false // the callback record will not accept the parts of this line
			if parts++; parts > maxParts {
				return false, fmt.Errorf("got lines of more than %d MiB in sum that are too long, want records",
					maxParts*maxLineBytes>>20)
			}
		}
		if readErr == io.EOF && len(line) == 0 {
			return sound && bracket, nil
		}
		complete := bytes.HasSuffix(line, []byte("\n"))
		line = bytes.TrimSuffix(line, []byte("\n"))
		switch {
		case first:
			if string(line) != "[" {
				return false, errLayout
			}
		case string(line) == "]" && !bracket:
			bracket = true
			sound = sound && complete
		default:
			body, hadComma := bytes.CutSuffix(line, []byte(","))
			sound = sound && comma && !bracket && complete
			comma = hadComma
			record(body)
		}
		if readErr == io.EOF {
			return sound && bracket, nil
		}
	}
}

// readArray reads a JSON array of records in any layout, up to the first error. sound means that there was no error.
func readArray(file io.ReadSeeker) (records []Record, sound bool, err error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, false, err
	}
	in := json.NewDecoder(file)
	token, err := in.Token()
	if err == io.EOF {
		return nil, true, nil // an empty file contains no records
	}
	if token != json.Delim('[') {
		return nil, false, fmt.Errorf("not a JSON array")
	}
	for in.More() {
		var record Record
		if in.Decode(&record) != nil {
			return records, false, nil
		}
		records = append(records, record)
	}
	token, err = in.Token()
	return records, err == nil && token == json.Delim(']'), nil
}

// lineIteration returns the iteration in the text of a record. ok is false if the text is not a record.
func lineIteration(line []byte) (iteration int64, ok bool) {
	if !json.Valid(line) || len(line) == 0 || line[0] != '{' {
		return 0, false
	}
	at := bytes.Index(line, []byte(iterationKey))
	if at < 0 {
		return 0, false
	}
	digits := line[at+len(iterationKey):]
	end := bytes.IndexAny(digits, ",}")
	iteration, err := strconv.ParseInt(string(digits[:max(end, 0)]), 10, 64)
	return iteration, err == nil
}
