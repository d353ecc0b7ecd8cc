package regular

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	// mostLineBytes is the largest size of a line that EachLine passes to visit.
	mostLineBytes = 16 << 20
	// mostSkippedBytes is the largest sum of the sizes of lines that EachLine skips. A file in which EachLine would
	// skip more is not a text file, or it is a sparse file that would take minutes to read.
	mostSkippedBytes = 256 << 20
)

// EachLine calls visit with each line of the regular file path, including the line end. The last line may have no line
// end. For a line of more than 16 MiB, EachLine passes nil. If such lines exceed 256 MiB in total, EachLine returns an
// *Error. The slice line is valid only during the call of visit. Memory use is limited to one line, regardless of the
// size of the file.
func EachLine(path string, visit func(line []byte) error) error {
	f, info, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	return EachLineOf(path, f, info.Size(), visit)
}

// EachLineOf is EachLine for an open file of size bytes.
func EachLineOf(path string, f io.Reader, size int64, visit func(line []byte) error) error {
	in := bufio.NewReaderSize(f, int(min(size+1, mostLineBytes)))
	for skipped := 0; ; {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		if long {
			skipped += len(line)
		}
		for errors.Is(err, bufio.ErrBufferFull) {
			var more []byte
			more, err = in.ReadSlice('\n')
			if skipped += len(more); skipped > mostSkippedBytes {
				return &Error{
					path, fmt.Sprintf("got more than %d MiB in lines that are too long, want lines of at most %d MiB",
						mostSkippedBytes>>20, mostLineBytes>>20)}
			}
		}
		if err != nil && err != io.EOF {
			return err
		}
		if long {
			line = nil
		}
		if long || len(line) > 0 {
			if err := visit(line); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}
