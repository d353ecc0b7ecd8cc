package selftest

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/cli"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/exit"
	"github.com/hetero-train/hetero-train/cmd/hetero-train/internal/session"
	"github.com/hetero-train/hetero-train/engine/conformance"
	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/device/devicetest"
	"github.com/hetero-train/hetero-train/engine/device/reference"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// wrongDevice is a device that computes wrong results.
type wrongDevice struct{ *reference.Device }

func (d wrongDevice) Compile(op device.Op, in, out []device.TensorSpec) (device.Kernel, error) {
	if u, ok := op.(device.Unary); ok && u.Func == device.Neg {
		op = device.Unary{Func: device.Exp}
	}
	return d.Device.Compile(op, in, out)
}

func TestSelftestTellsFailuresInFull(t *testing.T) {
	wrong := proof{name: "wrong", missing: func() error { return nil }, check: func(t conformance.T) {
		devicetest.Run(t, func(conformance.TB, device.Options) device.Device { return wrongDevice{reference.New()} },
			devicetest.Caps{Types: []tensor.DType{tensor.F32}})
	}}
	var out, messages strings.Builder
	a := &cli.App{Env: session.Environment{Stdout: &out, Stderr: &messages}}
	err := checkAll(t.Context(), a, &selftestFlags{devices: []string{"wrong"}, run: "/values/elementwise/neg"},
		[]proof{wrong})
	if exit.Code(err) != exit.Device || !strings.Contains(out.String(), "wrong      values     FAILED") ||
		!strings.Contains(out.String(), "wrong/values/elementwise/neg") ||
		!strings.Contains(out.String(), "element 0: got ") {
		t.Errorf("got %v and\n%s", err, out.String())
	}
	wrong.missing = func() error { return errors.New("gone") }
	if err := checkAll(t.Context(), a, &selftestFlags{devices: []string{"all"}}, []proof{wrong}); exit.Code(
		err) != exit.Usage {
		t.Errorf("nothing there: got %v, want exit code 2", err)
	}
}

func TestAStoppedSelftestBeginsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	begun := 0
	p := proof{name: "two", missing: func() error { return nil }, check: func(t conformance.T) {
		for _, name := range []string{"first", "second"} {
			t.Run(name, func(conformance.T) { begun++; cancel() })
		}
	}}
	var out strings.Builder
	a := &cli.App{Env: session.Environment{Stdout: &out, Stderr: io.Discard}}
	if err := checkAll(ctx, a, &selftestFlags{devices: []string{"all"}}, []proof{p, p}); !errors.Is(err,
		context.Canceled) || begun != 1 {
		t.Errorf("got %v and %d checks begun, want the first alone", err, begun)
	}
	if strings.Contains(out.String(), "--time") {
		t.Errorf("no --time was given, got\n%s", out.String())
	}
}
