package dqn

// sumTree stores the weights of items. It finds the item at a position of the cumulative sum of the weights in
// logarithmic time.
//
// Each inner node is the rounded sum of its two children, and each change recomputes it. The tree therefore depends
// only on the current weights, not on their history.
type sumTree struct {
	leaves int       // a power of two
	nodes  []float64 // nodes[1] is the root; the children of node i are 2i and 2i+1; items start at nodes[leaves]
}

func newSumTree(items int) *sumTree {
	leaves := 1
	for leaves < items {
		leaves *= 2
	}
	return &sumTree{leaves: leaves, nodes: make([]float64, 2*leaves)}
}

func (t *sumTree) total() float64 { return t.nodes[1] }

func (t *sumTree) weight(item int) float64 { return t.nodes[t.leaves+item] }

// set changes the weight of an item. The weight must be at least 0.
func (t *sumTree) set(item int, weight float64) {
	i := t.leaves + item
	t.nodes[i] = weight
	for i /= 2; i >= 1; i /= 2 {
		t.nodes[i] = t.nodes[2*i] + t.nodes[2*i+1]
	}
}

// find returns the item at the position at of the cumulative sum, 0 <= at < total. The weight of this item is always
// above 0, even if at exceeds the sum of the weights because of rounding.
func (t *sumTree) find(at float64) int {
	i := 1
	for i < t.leaves {
		left := t.nodes[2*i]
		if i *= 2; (at >= left && t.nodes[i+1] > 0) || left == 0 {
			at -= left
			i++
		}
	}
	return i - t.leaves
}
