package plan

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// numbered returns values that differ between the elements of a parameter and between parameters.
func numbered(p ParamInfo, index int) []float64 {
	v := make([]float64, p.Spec.Shape.Elements())
	for i := range v {
		v[i] = float64(1000*(index+1) + i)
	}
	return v
}

func TestStateIsReadAsItWasWrittenWhateverTheLayout(t *testing.T) {
	for _, layout := range []device.Layout{device.Plain, channelsLast, reversed, reversedPadded} {
		for _, compute := range []tensor.DType{tensor.F32, tensor.F64} {
			t.Run(fmt.Sprint("layout ", layout, " ", compute), func(t *testing.T) {
				taste := func(op device.Op, out bool, _ int, have device.Layout) device.Layout {
					if _, ok := op.(device.Conv2DDiffWeights); ok && out {
						return layout
					}
					return have
				}
				r := newRig(t, openParticular(taste), classifierGraph(t, twoConvs, 2, 4, compute, true))
				defer r.close()
				params := r.state.Params
				for name, flat := range map[string]device.Buffer{"values": r.state.Values, "gradients": r.state.Grads} {
					// Write must set the padding inside a tensor to zero, and must not change the bytes between
					// tensors.
					fill(flat.Host(), 0xEE)
					for i, p := range params.Params {
						r.write(flat, p, numbered(p, i))
					}
					for i, p := range params.Params {
						if got := r.read(flat, p); !slices.Equal(got, numbered(p, i)) {
							t.Errorf("%s of %s: got %v, want %v", name, p.Name, got, numbered(p, i))
						}
						size := p.Spec.Size()
						at := flat.Host()[p.Offset : p.Offset+alignUp(size)]
						want := make([]byte, size)
						arrange(want, reference.Encode(p.Spec.DType, numbered(p, i)), p.Spec)
						if !bytes.Equal(at[:size], want) {
							t.Errorf("%s of %s: not in %v with zero padding", name, p.Name, p.Spec)
						}
						if !bytes.Equal(at[size:], bytes.Repeat([]byte{0xEE}, len(at)-int(size))) {
							t.Errorf("%s of %s: bytes behind the tensor were written", name, p.Name)
						}
					}
				}
				i, _ := params.Find("conv2.weight")
				if got := params.Params[i].Spec.Layout; got != layout {
					t.Errorf("conv2.weight: got layout %d, want that of its gradient, %d", got, layout)
				}
			})
		}
	}
}

func TestHostDataOfTheWrongSizeIsRefused(t *testing.T) {
	r := newRig(t, reference.New(), classifierGraph(t, twoConvs, 2, 4, tensor.F32, true))
	defer r.close()
	i, _ := r.state.Params.Find("conv1.weight")
	p := r.state.Params.Params[i]
	for _, n := range []int{0, 431, 433, 864} { // a tensor (4, 3, 3, 3) of f32 has 432 bytes
		for name, err := range map[string]error{"write": r.state.Write(r.state.Values, p, make([]byte, n)),
			"read": r.state.Read(r.state.Values, p, make([]byte, n))} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("conv1.weight: got %d bytes, want 432", n)) {
				t.Errorf("%s %d bytes: got %v, want an error naming the parameter", name, n, err)
			}
		}
	}
}

func TestNewStateIsZeroAndKnowsItsBytes(t *testing.T) {
	for name, dev := range map[string]device.Device{
		"reference": reference.New(), "layouts": openParticular(tasteOfConvs)} {
		t.Run(name, func(t *testing.T) {
			cache := NewCache(dev)
			defer cache.Close()
			p, err := Compile(cache, classifierGraph(t, twoConvs, 2, 4, tensor.F32, true), nil)
			if err != nil {
				t.Fatal(err)
			}
			s, err := NewState(cache, p.Params())
			if err != nil {
				t.Fatal(err)
			}
			for name, b := range map[string]device.Buffer{"values": s.Values, "gradients": s.Grads,
				"statistics": s.States} {
				if slices.Max(b.Host()) != 0 {
					t.Errorf("%s: not zero", name)
				}
			}
			largest := int64(6 * 4 * 3 * 3 * 4) // conv2.weight in plain layout
			want := 2*p.Params().Bytes + p.Params().StateBytes + largest
			if have, _ := dev.Memory(); s.Bytes() != want || have != want {
				t.Errorf("got %d bytes and %d of the device's memory, want %d", s.Bytes(), have, want)
			}
			moments, err := s.NewFlat(p.Params().Bytes)
			if err != nil {
				t.Fatal(err)
			}
			if slices.Max(moments.Host()) != 0 || moments.Bytes() != p.Params().Bytes {
				t.Errorf("flat buffer: got %d bytes, want %d zeros", moments.Bytes(), p.Params().Bytes)
			}
			for _, err := range []error{moments.Free(), s.Close(), s.Close()} { // a second Close has no effect
				if err != nil {
					t.Error(err)
				}
			}
			if have, _ := dev.Memory(); have != 0 {
				t.Errorf("%d bytes are left", have)
			}
		})
	}
}

func TestStateThatDoesNotFitTakesNothing(t *testing.T) {
	g := classifierGraph(t, twoConvs, 2, 4, tensor.F32, true)
	for limit := int64(0); ; limit += 500 {
		dev, err := reference.Driver{MemoryBytes: max(limit, 1)}.Open(0, device.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cache := NewCache(dev)
		p, err := Compile(cache, g, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewState(cache, p.Params())
		if err == nil {
			if limit < s.Bytes() {
				t.Errorf("got a state of %d bytes on a device of %d", s.Bytes(), limit)
			}
			s.Close()
			return
		}
		if !errors.Is(err, device.ErrOutOfMemory) || s != nil {
			t.Errorf("%d bytes: got %v, want ErrOutOfMemory and no state", limit, err)
		}
		if err := errors.Join(cache.Close(), dev.Close()); err != nil { // if memory is still allocated, Close fails
			t.Errorf("%d bytes: %v", limit, err)
		}
	}
}

// Read must also free the workspace that its reorder needs.
func TestReadingTakesNoMemoryForLong(t *testing.T) {
	d := openParticular(tasteOfConvs)
	d.workspace = 128
	r := newRig(t, d, classifierGraph(t, twoConvs, 2, 4, tensor.F32, true))
	before, _ := d.Memory()
	for i, p := range r.state.Params.Params {
		r.write(r.state.Values, p, numbered(p, i))
		r.read(r.state.Values, p)
	}
	if after, _ := d.Memory(); after != before {
		t.Errorf("got %d bytes after reading and writing, want the %d before", after, before)
	}
	r.close()
}
