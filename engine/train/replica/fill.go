package replica

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/hetero-train/hetero-train/engine/data"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/task"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// targetsOf returns the number of targets of a batch that contribute to the loss.
func targetsOf(b *data.Batch) (count int) {
	for _, label := range data.Values[int32](b, task.Labels) {
		if label >= 0 {
			count++
		}
	}
	return count
}

// load copies a batch to the device.
func (p *pass) load(s device.Stream, b *data.Batch) error {
	if err := p.fill(b, p.host.Host()); err != nil || p.idle {
		return err
	}
	return p.send(s, p.fields...)
}

// fill writes a batch to host, which has the layout of the host twins. If the batch has fewer samples than the plan,
// fill pads the batch. The loss ignores the padding.
func (p *pass) fill(b *data.Batch, host []byte) error {
	if b.N > p.n {
		return fmt.Errorf("replica: got a batch of %d samples, want at most %d", b.N, p.n)
	}
	if p.idle {
		return nil
	}
	filled := 0
	for f, field := range b.Fields {
		to, ok := p.inputs[field.Name]
		if !ok && field.Name == data.IDs {
			continue // evaluation needs no ids
		}
		if !ok {
			return fmt.Errorf("replica: the batch has the field %s, which is not an input of the model", field.Name)
		}
		filled++
		if err := to.fill(host, field, b.Bytes(f), p.n, p.positions); err != nil {
			return err
		}
	}
	if t, ok := p.inputs[classWeightInput]; ok {
		filled++
		if err := t.fillWeights(host, data.Values[int32](b, task.Labels), p.classWeights); err != nil {
			return err
		}
	}
	if filled != len(p.fields) {
		return fmt.Errorf("replica: the batch has the fields %s, want also %s", fieldNames(b),
			strings.Join(p.missing(b), ", "))
	}
	return nil
}

// missing returns the names of the inputs that a batch lacks.
func (p *pass) missing(b *data.Batch) (names []string) {
	for _, name := range p.fields {
		if !slices.ContainsFunc(b.Fields, func(f data.Field) bool { return f.Name == name }) {
			names = append(names, name)
		}
	}
	return names
}

// fill writes the elements of a field to host, and pads them to n samples. If positions is not 0, fill writes only the
// first positions of each sample.
func (t transfer) fill(host []byte, field data.Field, src []byte, n, positions int) error {
	dst := t.in(host)
	if positions > 0 && field.PerPosition {
		return t.fillStart(dst, field, src, n, positions)
	}
	if t.spec.DType == tensor.F64 && field.DType == tensor.F32 {
		for i := 0; i < len(src); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(src[i:]))
			binary.LittleEndian.PutUint64(dst[2*i:], math.Float64bits(float64(v)))
		}
		return nil // the loss ignores the missing samples
	}
	if want := n * field.Bytes(); t.spec.DType != field.DType || len(dst) != want {
		return fmt.Errorf("replica: got %[2]d bytes of %[3]v for field %[1]s of a batch, want %[4]d bytes of %[5]v",
			field.Name, want, field.DType, len(dst), t.spec.DType)
	}
	rest := dst[copy(dst, src):]
	for i := range rest {
		rest[i] = field.Pad
	}
	return nil
}

// fillStart writes the first positions of each sample to dst, and pads them to n samples.
func (t transfer) fillStart(dst []byte, field data.Field, src []byte, n, positions int) error {
	full := field.Bytes()
	part := full / field.Shape[0] * positions
	if want := n * part; t.spec.DType != field.DType || len(dst) != want {
		return fmt.Errorf(
			"replica: got %[3]d bytes of %[4]v for %[1]d positions of field %[2]s, want %[5]d bytes of %[6]v",
			positions, field.Name, want, field.DType, len(dst), t.spec.DType)
	}
	for ; len(src) > 0; src, dst = src[full:], dst[part:] {
		copy(dst[:part], src)
	}
	for i := range dst {
		dst[i] = field.Pad
	}
	return nil
}

// fillWeights writes the weight of the class of each label to host, and 0 for labels that do not count and for padding.
func (t transfer) fillWeights(host []byte, labels []int32, weights []float64) error {
	dst, size := t.in(host), int(t.spec.DType.Size())
	clear(dst)
	for i, label := range labels {
		if label < 0 {
			continue
		}
		if int(label) >= len(weights) {
			return fmt.Errorf("replica: got label %d, want one of the %d classes that have weights", label,
				len(weights))
		}
		if size == 8 {
			binary.LittleEndian.PutUint64(dst[i*size:], math.Float64bits(weights[label]))
		} else {
			binary.LittleEndian.PutUint32(dst[i*size:], math.Float32bits(float32(weights[label])))
		}
	}
	return nil
}

// fieldNames returns the names of a batch's fields as one text.
func fieldNames(b *data.Batch) string {
	var names []string
	for _, f := range b.Fields {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}
