package timeline

import (
	"slices"
	"strings"
)

// waitingCalls are functions of CUDA, without what their versions are told apart by, that come back when the device has done something.
var waitingCalls = []string{
	"cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize",
	"cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemsetD8", "cuMemsetD32",
	"cudaMalloc", "cudaFree", "cuMemAlloc", "cuMemFree", "cudaMallocHost", "cudaHostAlloc", "cudaFreeHost", "cuMemHostAlloc", "cuMemAllocHost", "cuMemFreeHost",
	"cudaHostRegister", "cudaHostUnregister", "cuMemHostRegister", "cuMemHostUnregister",
}

// waits is whether a call of CUDA waits for the device: to the end of something, or for the whole of it, as memory does that is given out or taken back.
func waits(call string) bool {
	call, _, _ = strings.Cut(call, "_") // "cudaStreamSynchronize_ptsz"
	return slices.Contains(waitingCalls, call)
}

// gives is whether a call of CUDA gives the device something to do.
func gives(call string) bool {
	return strings.Contains(call, "Launch") || strings.HasSuffix(call, "Async") || strings.Contains(call, "Async_")
}

// hostWaits counts the calls that wait, those within others left out: the run-time library calls the driver. calls and steps are in order.
func hostWaits(calls, steps []Span) (all []HostWaits) {
	end := map[int]int64{} // of the last one that waits, by thread
	for _, s := range steps {
		given := int64(0) // when the step last gave the device something to do
		for _, c := range calls {
			if gives(c.Name) && s.Begin <= c.Begin && c.Begin < s.End() {
				given = c.Begin
			}
		}
		for _, c := range calls {
			if !waits(c.Name) || c.Begin < s.Begin || c.Begin >= s.End() || c.End() <= end[c.Lane] {
				continue
			}
			end[c.Lane] = c.End()
			i := slices.IndexFunc(all, func(w HostWaits) bool { return w.Name == c.Name })
			if i < 0 {
				i = len(all)
				all = append(all, HostWaits{Name: c.Name})
			}
			all[i].Count++
			all[i].Took += c.Took
			if c.End() <= given {
				all[i].Within++
			}
		}
	}
	return all
}
