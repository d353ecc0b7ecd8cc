package inflate

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ErrCorrupt is wrapped by the errors of input that is no gzip stream, or a damaged one.
var ErrCorrupt = errors.New("gzip stream is corrupt")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

const (
	windowBytes = 32 << 10
	outputBytes = 128 << 10 // window and what is decoded beyond it
)

// Point is a place at which decoding can begin.
type Point struct {
	In     int64  // in the compressed file, bits
	Out    int64  // of the output, bytes
	Window []byte // output before Out, at most 32 KiB; zeros where nothing refers to it
	Sum    uint32 // CRC-32C of the output from Out to the next point
}

// mode is what the decoder expects next.
type mode uint8

const (
	atMember mode = iota // header of a gzip member, or the end
	atBlock              // header of a block
	inStored
	inCoded
	atTrailer
	atEnd
)

// stream is the state of the decoder.
type stream struct {
	in bitReader

	mode   mode
	final  bool // the block is the last of its member
	stored int  // bytes left of a stored block
	length int  // bytes left of a copy
	dist   int  // of that copy

	literals, distances huffman
	lengths             [320]uint8

	out    []byte // window and output
	read   int    // of out: what Read has not handed out yet begins here
	write  int    // of out: end of what is decoded
	total  int64  // place in the whole output of out[write]
	window int    // bytes before out[write] that may be copied from; at most windowBytes

	whole bool   // the member was decoded from its start, so that its CRC is known
	sum   uint32 // CRC-32 of it, up to summed
	from  int    // of out: what sum does not yet hold begins here
	size  uint32 // bytes of the member, modulo 2^32
}

// Reader decodes a gzip stream. It is used by one goroutine at a time.
type Reader struct {
	s      stream
	err    error
	marker *marker
}

// NewReader returns a Reader at the start of src, of size bytes.
func NewReader(src io.ReaderAt, size int64) *Reader {
	r := &Reader{}
	r.s.in.src, r.s.in.size = src, size
	r.s.out = make([]byte, outputBytes)
	return r
}

// Reset makes the Reader, with its buffers, one of another file.
func (r *Reader) Reset(src io.ReaderAt, size int64) {
	s := &r.s
	s.in = bitReader{src: src, size: size, buf: s.in.buf}
	s.mode, s.final, s.stored, s.length, s.whole = atMember, false, 0, 0, false
	s.read, s.write, s.from, s.window, s.total = 0, 0, 0, 0, 0
	r.err, r.marker = nil, nil
}

// Restart makes the next Read give the output from p.Out on.
func (r *Reader) Restart(p Point) error {
	s := &r.s
	if len(p.Window) > windowBytes || p.In < 0 || p.In > 8*s.in.size || p.Out < 0 {
		return corrupt("restart point at bit %d with a window of %d bytes", p.In, len(p.Window))
	}
	s.mode, s.final, s.stored, s.length, s.whole = atBlock, false, 0, 0, false
	s.window = copy(s.out, p.Window)
	s.read, s.write, s.from, s.total = s.window, s.window, s.window, p.Out
	r.marker = nil
	r.err = s.in.seek(p.In)
	return r.err
}

// Read decodes. Output before an error is handed out first.
func (r *Reader) Read(p []byte) (int, error) {
	s := &r.s
	for s.read == s.write && r.err == nil && len(p) > 0 {
		s.makeRoom()
		r.err = r.step()
		if r.marker != nil {
			r.marker.output(s.out[s.from:s.write])
		}
		s.account()
	}
	n := copy(p, s.out[s.read:s.write])
	s.read += n
	if n == 0 && len(p) > 0 {
		return 0, r.err
	}
	return n, nil
}

// makeRoom moves the window to the start of out when little room is left. All output has been handed out.
func (s *stream) makeRoom() {
	if len(s.out)-s.write >= len(s.out)/4 {
		return
	}
	keep := min(s.write, windowBytes)
	copy(s.out, s.out[s.write-keep:s.write])
	s.read, s.write, s.from = keep, keep, keep
}

// account takes what was decoded into the checksum.
func (s *stream) account() {
	if s.whole {
		s.sum = crc32.Update(s.sum, crc32.IEEETable, s.out[s.from:s.write])
		s.size += uint32(s.write - s.from)
	}
	s.from = s.write
}

// step decodes until out is full or the mode changes.
func (r *Reader) step() error {
	s := &r.s
	switch s.mode {
	case atMember:
		return s.member()
	case atBlock:
		if r.marker != nil {
			r.marker.block(s)
		}
		return s.block()
	case inStored:
		return s.copyStored()
	case inCoded:
		return s.decode(r.marker)
	case atTrailer:
		return s.trailer()
	}
	return io.EOF
}

// grow notes n more bytes of output.
func (s *stream) grow(n int) {
	s.write += n
	s.total += int64(n)
	s.window = min(s.window+n, windowBytes)
}

// block reads the header of a block.
func (s *stream) block() error {
	head, err := s.in.take(3)
	if err != nil {
		return err
	}
	s.final = head&1 != 0
	switch head >> 1 {
	case 0:
		s.in.align()
		v, err := s.in.take(32)
		if err != nil {
			return err
		}
		if uint16(v) != ^uint16(v>>16) {
			return corrupt("stored block of %d bytes, its complement is %d", uint16(v), ^uint16(v>>16))
		}
		s.mode, s.stored = inStored, int(uint16(v))
		return nil
	case 1:
		s.fixed()
	case 2:
		if err := s.dynamic(); err != nil {
			return err
		}
	default:
		return corrupt("block of type 3")
	}
	s.mode = inCoded
	return nil
}

func (s *stream) endBlock() {
	s.mode = atBlock
	if s.final {
		s.mode = atTrailer
	}
}

// copyStored hands on bytes of a stored block.
func (s *stream) copyStored() error {
	room := s.out[s.write:]
	room = room[:min(s.stored, len(room))]
	n := 0
	for n < len(room) {
		in := &s.in
		switch {
		case in.n > 0:
			room[n] = byte(in.held)
			in.drop(8)
			n++
		case in.at < in.end:
			k := copy(room[n:], in.buf[in.at:in.end])
			in.at += k
			n += k
		default:
			if err := in.fill(); err != nil {
				return err
			}
			if in.n == 0 {
				return io.ErrUnexpectedEOF
			}
		}
	}
	s.grow(n)
	if s.stored -= n; s.stored == 0 {
		s.endBlock()
	}
	return nil
}

// fixed sets the codes of RFC 1951, section 3.2.6.
func (s *stream) fixed() {
	for i := range 288 {
		switch {
		case i < 144, i >= 280:
			s.lengths[i] = 8
		case i < 256:
			s.lengths[i] = 9
		default:
			s.lengths[i] = 7
		}
	}
	s.literals.build(s.lengths[:288])
	for i := range 32 { // the last two never occur
		s.lengths[i] = 5
	}
	s.distances.build(s.lengths[:32])
}

var lengthOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// dynamic reads the codes of a block, RFC 1951, section 3.2.7.
func (s *stream) dynamic() error {
	v, err := s.in.take(14)
	if err != nil {
		return err
	}
	literals, distances, codes := int(v&31)+257, int(v>>5&31)+1, int(v>>10)+4
	if literals > 286 || distances > 30 {
		return corrupt("%d literal and %d distance codes, want at most 286 and 30", literals, distances)
	}
	lengths := s.lengths[:19]
	clear(lengths)
	for _, symbol := range lengthOrder[:codes] {
		l, err := s.in.take(3)
		if err != nil {
			return err
		}
		lengths[symbol] = uint8(l)
	}
	if !s.literals.build(lengths) {
		return corrupt("wrong code of code lengths")
	}
	if err := s.codeLengths(literals + distances); err != nil {
		return err
	}
	if s.lengths[256] == 0 {
		return corrupt("block without an end")
	}
	if !s.literals.build(s.lengths[:literals]) {
		return corrupt("wrong code of literals")
	}
	all := s.lengths[literals:][:distances]
	if !s.distances.build(all) && !empty(all) {
		return corrupt("wrong code of distances")
	}
	return nil
}

func empty(lengths []uint8) bool {
	for _, l := range lengths {
		if l != 0 {
			return false
		}
	}
	return true
}

// codeLengths reads n lengths that are packed by the code in literals.
func (s *stream) codeLengths(n int) error {
	for i := 0; i < n; {
		symbol, err := s.literals.decode(s)
		if err != nil {
			return err
		}
		repeat, value := 1, uint8(symbol)
		var extra uint32
		switch {
		case symbol < 0:
			return corrupt("wrong code length")
		case symbol == 16:
			if i == 0 {
				return corrupt("repeats a code length before the first")
			}
			value = s.lengths[i-1]
			extra, err = s.in.take(2)
			repeat = 3 + int(extra)
		case symbol == 17:
			value = 0
			extra, err = s.in.take(3)
			repeat = 3 + int(extra)
		case symbol == 18:
			value = 0
			extra, err = s.in.take(7)
			repeat = 11 + int(extra)
		}
		if err != nil {
			return err
		}
		if i+repeat > n {
			return corrupt("%d code lengths, want %d", i+repeat, n)
		}
		for range repeat {
			s.lengths[i] = value
			i++
		}
	}
	return nil
}

var (
	lengthBase  = [29]uint16{3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 15, 17, 19, 23, 27, 31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258}
	lengthExtra = [29]uint8{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0}
	distBase    = [30]uint16{1, 2, 3, 4, 5, 7, 9, 13, 17, 25, 33, 49, 65, 97, 129, 193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577}
	distExtra   = [30]uint8{0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13}
)

// decode decodes a block of Huffman codes until it ends or out is full.
func (s *stream) decode(m *marker) error {
	for s.write < len(s.out) {
		if s.length > 0 {
			s.copyBack()
			continue
		}
		symbol, err := s.literals.decode(s)
		switch {
		case err != nil:
			return err
		case symbol < 0:
			return corrupt("wrong literal code")
		case symbol < 256:
			s.out[s.write] = byte(symbol)
			s.grow(1)
		case symbol == 256:
			s.endBlock()
			return nil
		default:
			if err := s.match(symbol - 257); err != nil {
				return err
			}
			if m != nil {
				m.copied(s)
			}
		}
	}
	return nil
}

// match reads the rest of a copy: its length and distance.
func (s *stream) match(symbol int) error {
	if symbol >= len(lengthBase) {
		return corrupt("wrong length code %d", symbol+257)
	}
	extra, err := s.in.take(uint(lengthExtra[symbol]))
	if err != nil {
		return err
	}
	length := int(lengthBase[symbol]) + int(extra)
	if symbol, err = s.distances.decode(s); err != nil {
		return err
	}
	if symbol < 0 || symbol >= len(distBase) {
		return corrupt("wrong distance code")
	}
	if extra, err = s.in.take(uint(distExtra[symbol])); err != nil {
		return err
	}
	s.length, s.dist = length, int(distBase[symbol])+int(extra)
	if s.dist > s.window {
		return corrupt("copies from %d bytes back, but only %d are there", s.dist, s.window)
	}
	return nil
}

// copyBack copies as much of a match as there is room for.
func (s *stream) copyBack() {
	n := min(s.length, len(s.out)-s.write)
	if s.dist >= n {
		copy(s.out[s.write:][:n], s.out[s.write-s.dist:])
	} else {
		for i := s.write; i < s.write+n; i++ {
			s.out[i] = s.out[i-s.dist]
		}
	}
	s.grow(n)
	s.length -= n
}
