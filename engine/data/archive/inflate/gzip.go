package inflate

import "io"

// member reads the header of a gzip member. Zeros after a member, which tapes leave, are its end.
func (s *stream) member() error {
	first := s.total == 0 && s.in.position() == 0
	if s.in.ended() {
		if first {
			return io.ErrUnexpectedEOF
		}
		s.mode = atEnd
		return nil
	}
	var head [10]byte
	if err := s.bytes(head[:1]); err != nil {
		return err
	}
	if head[0] == 0 && !first {
		return s.zeros()
	}
	if err := s.bytes(head[1:]); err != nil {
		return err
	}
	if head[0] != 0x1F || head[1] != 0x8B || head[2] != 8 || head[3]&0xE0 != 0 {
		return corrupt("header begins with % x, want 1f 8b 08", head[:4])
	}
	const (
		headerCRC = 1 << 1
		extra     = 1 << 2
		name      = 1 << 3
		comment   = 1 << 4
	)
	if head[3]&extra != 0 {
		n, err := s.in.take(16)
		if err != nil {
			return err
		}
		for range n {
			if _, err := s.in.take(8); err != nil {
				return err
			}
		}
	}
	for _, text := range []byte{name, comment} {
		if head[3]&text == 0 {
			continue
		}
		for c := uint32(1); c != 0; {
			var err error
			if c, err = s.in.take(8); err != nil {
				return err
			}
		}
	}
	if head[3]&headerCRC != 0 {
		if _, err := s.in.take(16); err != nil {
			return err
		}
	}
	s.mode, s.whole, s.sum, s.size, s.window = atBlock, true, 0, 0, 0
	return nil
}

func (s *stream) bytes(p []byte) error {
	for i := range p {
		v, err := s.in.take(8)
		if err != nil {
			return err
		}
		p[i] = byte(v)
	}
	return nil
}

// zeros passes over zeros up to the end of the file.
func (s *stream) zeros() error {
	for !s.in.ended() {
		v, err := s.in.take(8)
		if err != nil {
			return err
		}
		if v != 0 {
			return corrupt("byte %#02x after zeros that follow the stream", v)
		}
	}
	s.mode = atEnd
	return nil
}

// trailer compares the checksum of a member where it was decoded from its start.
func (s *stream) trailer() error {
	s.in.align()
	sum, err := s.in.take(32)
	if err != nil {
		return err
	}
	size, err := s.in.take(32)
	if err != nil {
		return err
	}
	if s.whole && (sum != s.sum || size != s.size) {
		return corrupt("contents have CRC-32 %08x and %d bytes, want %08x and %d", s.sum, s.size, sum, size)
	}
	s.mode, s.whole = atMember, false
	return nil
}
