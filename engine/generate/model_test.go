package generate

import (
	"math"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/cpu"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/models/gpt2"
	"github.com/hetero-train/hetero-train/engine/nativelib/nativetest"
	"github.com/hetero-train/hetero-train/engine/nn/random"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

var size = gpt2.Size{Vocabulary: 50, Positions: 40, Layers: 3, Heads: 2, Channels: 32}

// open returns GPT-2 with large random weights. Each token then affects the logits.
func open(t *testing.T, dev device.Device, compute tensor.DType) *Model {
	t.Helper()
	return fill(t, dev, Options{Model: gpt2.Build(size, gpt2.Options{}), Compute: compute})
}

// fill opens a model with large random weights.
func fill(t *testing.T, dev device.Device, o Options) *Model {
	t.Helper()
	o.Vocabulary, o.Positions = size.Vocabulary, size.Positions
	m, err := Open(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	constants := map[string]*[]float64{}
	for _, c := range m.state.Params.States {
		constants[c.Name] = c.Init.Values
	}
	err = m.state.Fill(func(name string, dst []byte) error {
		if c := constants[name]; c != nil {
			copy(dst, reference.Encode(tensor.F32, *c))
			return nil
		}
		values := random.New(7, name)
		for i := range len(dst) / 4 {
			bits := math.Float32bits(float32(values.Normal(uint64(i)) * 0.3))
			for b := range 4 {
				dst[4*i+b] = byte(bits >> (8 * b))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// openCPU opens the CPU device with two threads. The end of the test closes it.
func openCPU(t testing.TB) device.Device {
	t.Helper()
	nativetest.Need(t, "cpu", "libhetero_cpu.so")
	dev, err := cpu.Driver{}.Open(0, device.Options{Threads: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// TestCachedPositionsGiveTheLogitsOfTheWholeText generates more tokens than the model has positions. It then continues
// another text.
func TestCachedPositionsGiveTheLogitsOfTheWholeText(t *testing.T) {
	cpus := openCPU(t)
	for _, c := range []struct {
		name      string
		dev       device.Device
		compute   tensor.DType
		tolerance float64 // largest permitted difference of a logit; logits are about 10
	}{
		{"reference", reference.New(), tensor.F32, 1e-4}, // sums in another order
		{"cpu", cpus, tensor.F32, 1e-4},
		{"cpu bf16", cpus, tensor.BF16, 1}, // each activation is rounded to 8 bits
	} {
		t.Run(c.name, func(t *testing.T) {
			m, whole := open(t, c.dev, c.compute), open(t, c.dev, c.compute)
			var texts [][]int32
			for n := 1; n <= size.Positions+3; n++ {
				texts = append(texts, make([]int32, n))
				for i := range n {
					texts[n-1][i] = int32((i*i*7 + 3*i) % size.Vocabulary)
				}
			}
			texts = append(texts, []int32{4, 4, 4}, []int32{4, 4, 4, 9}, []int32{4, 4, 5, 9, 1})
			for _, text := range texts {
				got, err := m.Next(text)
				if err != nil {
					t.Fatal(err)
				}
				whole.cached = nil // makes Next read the whole text
				want, err := whole.Next(text)
				if err != nil {
					t.Fatal(err)
				}
				for i := range want {
					if !(math.Abs(float64(got[i]-want[i])) <= c.tolerance) {
						t.Fatalf("%d tokens, logit %d: got %v with the cache, want %v", len(text), i, got[i], want[i])
					}
				}
			}
		})
	}
}

// TestTokensWithoutTheCacheAreThoseOfTheCache runs GPT-2 on a device that lacks the op that reads the cache. The tokens
// must not change.
func TestTokensWithoutTheCacheAreThoseOfTheCache(t *testing.T) {
	var warned []string
	whole := fill(t, lacking{reference.New()}, Options{Model: gpt2.Build(size, gpt2.Options{}), Compute: tensor.F32,
		Warn: func(reason string) { warned = append(warned, reason) }})
	sameTokens(t, open(t, reference.New(), tensor.F32), whole)
	if len(warned) != 1 || !strings.Contains(warned[0], "cannot compute a token from the keys and values") {
		t.Errorf("got warnings %q", warned)
	}
}

// sameTokens generates more tokens than the models have positions. Both models must give the same tokens.
func sameTokens(t *testing.T, one, other *Model) {
	t.Helper()
	sampler, err := NewSampler(SamplerOptions{Temperature: 1.5, TopP: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	again, err := NewSampler(SamplerOptions{Temperature: 1.5, TopP: 1, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	text, kinds := []int32{7}, map[int32]bool{}
	for range size.Positions + 5 {
		logits, err := one.Next(text)
		if err != nil {
			t.Fatal(err)
		}
		want, err := sampler.Choose(logits)
		if err != nil {
			t.Fatal(err)
		}
		if logits, err = other.Next(text); err != nil {
			t.Fatal(err)
		}
		got, err := again.Choose(logits)
		if err != nil || got != want {
			t.Fatalf("after %d tokens: got token %d, %v, want %d", len(text), got, err, want)
		}
		text, kinds[got] = append(text, got), true
	}
	if len(kinds) < 5 {
		t.Errorf("got %d different tokens, want at least 5", len(kinds))
	}
}

// lacking is a device without the op that reads the key-value cache.
type lacking struct{ device.Device }

func (d lacking) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if op.Kind() == (device.AttentionStep{}).Kind() {
		return nil, device.ErrUnsupported
	}
	return d.Device.Compile(op, in, out)
}
