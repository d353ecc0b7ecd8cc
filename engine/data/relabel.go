package data

// Relabelled returns ds with the classes of a trained model. Class i of ds becomes class label[i], an index into
// classes.
func Relabelled(ds Dataset, classes []string, label []int) Dataset {
	return &relabelled{ds, classes, label}
}

type relabelled struct {
	Dataset
	classes []string
	label   []int
}

func (r *relabelled) Classes() []string { return r.classes }

func (r *relabelled) Label(i int) int { return r.label[r.Dataset.Label(i)] }
