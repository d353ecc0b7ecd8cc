package regular

import (
	"bufio"
	"errors"
	"io"
)

// mostLineBytes limits the memory for a line.
const mostLineBytes = 16 << 20

// EachLine calls visit with each line of the regular file path, including its line end, which the last line may lack.
// It passes nil for a line of more than 16 MiB. The slice is valid only during the call. Memory use is limited to one
// line, regardless of the file's size.
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
