package regular

import (
	"bufio"
	"errors"
	"io"
)

// mostLineBytes bounds the memory that lines need.
const mostLineBytes = 16 << 20

// EachLine calls visit with each line of the regular file path and its end, which the last line may lack. A line of more than 16 MiB is passed as nil.
// The text is valid during the call only: memory holds one line, however long the file is.
func EachLine(path string, visit func(line []byte) error) error {
	f, info, err := Open(path)
	if err != nil {
		return err
	}
	defer f.Close() // is only read
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
