package inflate

import (
	"errors"
	"io"
)

// bitReader reads a file bit by bit, least significant first.
type bitReader struct {
	src  io.ReaderAt
	size int64 // of src, bytes
	buf  []byte
	at   int    // next byte of buf
	end  int    // bytes in buf
	next int64  // place in src of buf[end]
	held uint64 // bits taken out of buf, not yet used
	n    uint   // how many
}

const inputBytes = 64 << 10

// seek goes to a bit of the file.
func (b *bitReader) seek(bit int64) error {
	b.next, b.at, b.end, b.held, b.n = bit/8, 0, 0, 0, 0
	if skip := uint(bit % 8); skip > 0 {
		if err := b.need(skip); err != nil {
			return err
		}
		b.drop(skip)
	}
	return nil
}

// position is the place in the file, in bits.
func (b *bitReader) position() int64 { return 8*(b.next-int64(b.end-b.at)) - int64(b.n) }

// fill takes as many bits out of the file as there is room for.
func (b *bitReader) fill() error {
	for b.n <= 56 {
		if b.at == b.end {
			if b.buf == nil {
				b.buf = make([]byte, inputBytes)
			}
			want := min(int64(len(b.buf)), b.size-b.next)
			if want <= 0 {
				return nil
			}
			n, err := b.src.ReadAt(b.buf[:want], b.next)
			if n == 0 {
				if err == nil || errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return err
			}
			b.at, b.end = 0, n
			b.next += int64(n)
		}
		b.held |= uint64(b.buf[b.at]) << b.n
		b.at++
		b.n += 8
	}
	return nil
}

// need makes sure that count bits are held; at most 57.
func (b *bitReader) need(count uint) error {
	if b.n >= count {
		return nil
	}
	if err := b.fill(); err != nil {
		return err
	}
	if b.n < count {
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (b *bitReader) drop(count uint) {
	b.held >>= count
	b.n -= count
}

// take reads a number of count bits, at most 32.
func (b *bitReader) take(count uint) (uint32, error) {
	if err := b.need(count); err != nil {
		return 0, err
	}
	v := uint32(b.held & (1<<count - 1))
	b.drop(count)
	return v, nil
}

// align drops what is left of a byte.
func (b *bitReader) align() { b.drop(b.n % 8) }

// ended tells whether there are no whole bytes left.
func (b *bitReader) ended() bool { return b.n < 8 && b.at == b.end && b.next >= b.size }
