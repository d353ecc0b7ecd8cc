package data

// announce announces the samples that this rank reads next: those of all steps that have a slot. If the storage is
// slow, it also announces further samples of the same epoch. The caller must hold the lock.
func (l *Loader) announce() {
	if l.ahead == nil || l.shuffling { // a worker rewrites the order without the lock
		return
	}
	count := l.shares[len(l.shares)-1].count
	end := l.fill + int64((l.ahead.Horizon()+max(count, 1)-1)/max(count, 1))
	for ; l.announced < end; l.announced++ {
		epoch := int(l.announced / int64(l.perPass))
		if l.o.Evaluate && epoch > 0 || !l.o.Evaluate && epoch != l.orderEpoch {
			return // the order of the next epoch is not known yet
		}
		first := int(l.announced%int64(l.perPass)) * l.part
		total := min(l.part, l.o.Samples.Len()-first)
		share := l.shareOf(l.announced)
		for j := min(share.offset, total); j < min(share.offset+share.count, total); j++ {
			index := first + j
			if !l.o.Evaluate {
				index = int(l.order[index])
			}
			l.ahead.Expect(index)
		}
	}
}

// announceAgain replaces all announcements after a change of the share. The caller must hold the lock.
func (l *Loader) announceAgain() {
	if l.ahead == nil {
		return
	}
	l.ahead.Forget()
	for step := l.head; step < l.fill; step++ {
		for _, s := range l.slots {
			if s.state != slotFilling || s.step != step || s.move {
				continue
			}
			for j := s.lo; j < s.hi; j++ {
				if s.have[j-s.origin] == sampleMissing {
					l.ahead.Expect(int(s.index[j]))
				}
			}
		}
	}
	l.announced = l.fill
	l.announce()
}
