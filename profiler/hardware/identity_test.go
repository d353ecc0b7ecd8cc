package hardware

import (
	"testing"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/profiler/system"
)

func TestFingerprintsChangeWithTheHardwareAlone(t *testing.T) {
	cpu := device.Info{Name: "cpu:0", Kind: "cpu", Model: "AMD EPYC", ISA: "avx512_bf16", Threads: 1,
		MemoryBytes: 8 << 30}
	host := system.Host{Name: "a", CPU: system.CPU{Model: "AMD EPYC", Usable: 2, Quota: 0.8},
		Memory: system.Memory{Total: 16 << 30, Available: 3, Limit: 8 << 30}}
	card := GPU{UUID: "GPU-1", Name: "NVIDIA H100 80GB HBM3", MemoryBytes: 80 << 30, TemperatureC: 33}
	cuda := device.Info{Name: "cuda:0", Kind: "cuda", Model: card.Name, ISA: "sm_90", MemoryBytes: card.MemoryBytes}
	first := Identify(cpu, host, nil)
	gpu := Identify(cuda, host, &card)
	for _, c := range []struct {
		name   string
		change func(d *device.Info, h *system.Host, g *GPU)
		cpu    bool // the test changes the fingerprint of the CPU rank
		gpu    bool // the test changes the fingerprint of the GPU rank
	}{
		{"nothing", func(*device.Info, *system.Host, *GPU) {}, false, false},
		{"what is measured", func(_ *device.Info, h *system.Host, g *GPU) {
			h.Memory.Available, g.TemperatureC, g.SMClockMHz = 9, 80, 1980
		}, false, false},
		{"another name of the machine", func(_ *device.Info, h *system.Host, _ *GPU) { h.Name = "b" }, false, false},
		{"a kernel that keeps some MB", func(_ *device.Info, h *system.Host, _ *GPU) { h.Memory.Limit -= 20 << 20 },
			false, false},
		{"another quota", func(_ *device.Info, h *system.Host, _ *GPU) { h.CPU.Quota = 0.5 }, true, true},
		{"another CPU", func(_ *device.Info, h *system.Host, _ *GPU) { h.CPU.Model = "Xeon" }, true, true},
		{"fewer CPUs", func(_ *device.Info, h *system.Host, _ *GPU) { h.CPU.Usable = 1 }, true, true},
		{"more memory", func(_ *device.Info, h *system.Host, _ *GPU) { h.Memory.Limit *= 2 }, true, true},
		{"more threads", func(d *device.Info, _ *system.Host, _ *GPU) { d.Threads++ }, true, true},
		{"another card of the same type", func(_ *device.Info, _ *system.Host, g *GPU) { g.UUID = "GPU-2" }, false,
			true},
	} {
		d, h, g, u := cpu, host, card, cuda
		c.change(&d, &h, &g)
		u.Threads = d.Threads - 1
		if got := Identify(d, h, nil).Fingerprint; (got != first.Fingerprint) != c.cpu {
			t.Errorf("%s: CPU rank: changed %v, want %v", c.name, !c.cpu, c.cpu)
		}
		if got := Identify(u, h, &g).Fingerprint; (got != gpu.Fingerprint) != c.gpu {
			t.Errorf("%s: GPU rank: changed %v, want %v", c.name, !c.gpu, c.gpu)
		}
	}
	if Fingerprint("ab", "c") == Fingerprint("a", "bc") {
		t.Error("the fingerprint does not tell where facts end")
	}
}

func TestUnlikeArmCPUsAreUnlikeTypes(t *testing.T) {
	dev := device.Info{Kind: "cpu", Model: "aarch64 CPU", ISA: "neon", Threads: 2}
	for model, want := range map[string]string{
		"Neoverse N1":    "cpu Neoverse N1 neon 2 CPUs 2 threads",
		"ARM part 0xfff": "cpu ARM part 0xfff neon 2 CPUs 2 threads",
		"":               "cpu aarch64 CPU neon 2 CPUs 2 threads",
	} {
		if got := Identify(dev, system.Host{CPU: system.CPU{Model: model, Quota: 2}}, nil).Type; got != want {
			t.Errorf("%q: got %q, want %q", model, got, want)
		}
	}
}

func TestTypesOfDevicesAreReadable(t *testing.T) {
	for _, c := range []struct {
		dev   device.Info
		quota float64
		gpu   *GPU
		want  string
	}{
		{device.Info{Kind: "cpu", Model: "AMD EPYC", ISA: "avx512", Threads: 1}, 0.8, nil,
			"cpu AMD EPYC avx512 0.8 CPUs 1 thread"},
		{device.Info{Kind: "cpu", Model: "AMD EPYC", ISA: "avx512", Threads: 2}, 16, nil,
			"cpu AMD EPYC avx512 2 CPUs 2 threads"},
		{device.Info{Kind: "cpu", Model: "Intel(R) Xeon(R)  Gold 6130 CPU @ 2.10GHz", ISA: "avx2", Threads: 8}, 8, nil,
			"cpu Intel R Xeon R Gold 6130 CPU @ 2.10GHz avx2 8 CPUs 8 threads"},
		{device.Info{Kind: "cuda", Model: "NVIDIA H100 80GB HBM3", ISA: "sm_90"}, 16, &GPU{},
			"cuda NVIDIA H100 80GB HBM3"},
		{device.Info{Kind: "cuda", Model: "../a/b", ISA: "sm_90"}, 16, &GPU{}, "cuda .. a b"},
	} {
		if got := Identify(c.dev, system.Host{CPU: system.CPU{Quota: c.quota}}, c.gpu).Type; got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}
