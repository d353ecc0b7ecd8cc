package regular

import (
	"bufio"
	"errors"
	"io"
)

// mostLineBytes is the largest size of a line that EachLine passes to visit.
const mostLineBytes = 16 << 20

// EachLine calls visit with each line of the regular file path, including the line end. The last line may have no
// line end. For a line of more than 16 MiB, EachLine passes nil. The slice is valid only during the call. Memory use
// is limited to one line, regardless of the size of the file.
func EachLine(path string, visit func(line []byte) error) error {
	f, info, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // read only
	in := bufio.NewReaderSize(f, int(min(info.Size()+1, mostLineBytes)))
	for {
		line, err := in.ReadSlice('\n')
		long := errors.Is(err, bufio.ErrBufferFull)
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.ReadSlice('\n')
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
