package timeline

import (
	"slices"
	"strings"
)

// waitingCalls are CUDA functions, without version suffixes, that return only after the device has done some work.
var waitingCalls = []string{
	"cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuCtxSynchronize", "cuStreamSynchronize",
	"cuEventSynchronize",
	"cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyDtoD", "cuMemsetD8", "cuMemsetD32",
	"cudaMalloc", "cudaFree", "cuMemAlloc", "cuMemFree", "cudaMallocHost", "cudaHostAlloc", "cudaFreeHost",
	"cuMemHostAlloc", "cuMemAllocHost", "cuMemFreeHost",
	"cudaHostRegister", "cudaHostUnregister", "cuMemHostRegister", "cuMemHostUnregister",
}

// waits reports whether a CUDA call waits for the device. Allocating and freeing memory wait for the whole device.
func waits(call string) bool {
	call, _, _ = strings.Cut(call, "_") // "cudaStreamSynchronize_ptsz"
	return slices.Contains(waitingCalls, call)
}

// gives reports whether a CUDA call submits work to the device.
func gives(call string) bool {
	return strings.Contains(call, "Launch") || strings.HasSuffix(call, "Async") || strings.Contains(call, "Async_")
}

// hostWaits counts the calls that wait for the device. It leaves out a waiting call inside another waiting call,
// because the CUDA run-time library calls the driver. calls and steps are in order of start.
func hostWaits(calls, steps []Span) (all []HostWaits) {
	end := map[int]int64{} // end of the last waiting call, by thread
	for _, s := range steps {
		given := int64(0) // time at which the step last submitted work, ns
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
