package data

// Wrappers of Datasets forward announcements with these functions.

func expect(ds Dataset, i int) {
	if a, ok := ds.(Ahead); ok {
		a.Expect(i)
	}
}

func horizon(ds Dataset) int {
	if a, ok := ds.(Ahead); ok {
		return a.Horizon()
	}
	return 0
}

func forget(ds Dataset) {
	if a, ok := ds.(Ahead); ok {
		a.Forget()
	}
}

// Expect implements Ahead.
func (s Images) Expect(i int) { expect(s.Dataset, i) }

// Horizon implements Ahead.
func (s Images) Horizon() int { return horizon(s.Dataset) }

// Forget implements Ahead.
func (s Images) Forget() { forget(s.Dataset) }

// Expect implements Ahead.
func (s *subset) Expect(i int) { expect(s.Dataset, int(s.index[i])) }

// Horizon implements Ahead.
func (s *subset) Horizon() int { return horizon(s.Dataset) }

// Forget implements Ahead.
func (s *subset) Forget() { forget(s.Dataset) }

// Expect implements Ahead. Cached images are not fetched.
func (c *cached) Expect(i int) {
	if c.entry[i].Load() == 0 {
		expect(c.Dataset, i)
	}
}

// Horizon implements Ahead.
func (c *cached) Horizon() int { return horizon(c.Dataset) }

// Forget implements Ahead.
func (c *cached) Forget() { forget(c.Dataset) }

// Expect implements Ahead. For a sample that is known to be unreadable, it announces the replacement.
func (s *Skipping) Expect(i int) {
	if k, replaced := s.replacement(i); replaced {
		i = k
	}
	if i >= 0 {
		expect(s.Dataset, i)
	}
}

// Horizon implements Ahead.
func (s *Skipping) Horizon() int { return horizon(s.Dataset) }

// Forget implements Ahead.
func (s *Skipping) Forget() { forget(s.Dataset) }

// Expect implements Ahead.
func (d *watched) Expect(i int) { expect(d.Dataset, i) }

// Horizon implements Ahead.
func (d *watched) Horizon() int { return horizon(d.Dataset) }

// Forget implements Ahead.
func (d *watched) Forget() { forget(d.Dataset) }

// Expect implements Ahead.
func (r *relabelled) Expect(i int) { expect(r.Dataset, i) }

// Horizon implements Ahead.
func (r *relabelled) Horizon() int { return horizon(r.Dataset) }

// Forget implements Ahead.
func (r *relabelled) Forget() { forget(r.Dataset) }
