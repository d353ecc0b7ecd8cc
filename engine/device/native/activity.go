//go:build cgo && linux

package native

// #include "bridge.h"
import "C"

import (
	"cmp"
	"slices"
	"time"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
)

// StartActivity implements device.ActivityNoter.
func (d *Device) StartActivity() error {
	if err := d.hold(); err != nil {
		return err
	}
	defer d.holds.release()
	return check(C.ht_do_activity_start(d.api, d.ptr), d.info.Name)
}

// StopActivity implements device.ActivityNoter.
func (d *Device) StopActivity() (out device.Activities, err error) {
	if err := d.hold(); err != nil {
		return out, err
	}
	defer d.holds.release()
	var a C.ht_activities
	if err := check(C.ht_do_activity_stop(d.api, d.ptr, &a), d.info.Name); err != nil {
		return out, err
	}
	defer C.ht_do_activity_free(d.api, d.ptr)
	names := map[*C.char]string{} // each name is converted only once, because there are few different names
	zero := time.Now().Add(-time.Duration(C.ht_monotonic_ns()))
	out = device.Activities{List: make([]device.Activity, a.count), Zero: zero, Lost: int64(a.lost)}
	for i, v := range unsafe.Slice(a.list, a.count) {
		name, ok := names[v.name]
		if !ok {
			name = C.GoString(v.name)
			names[v.name] = name
		}
		one := &out.List[i]
		*one = device.Activity{Kind: device.ActivityKind(v.kind), Name: name, Lane: int(v.lane),
			Begin: time.Duration(v.begin_ns), End: time.Duration(v.end_ns), Bytes: int64(v.bytes)}
		if p, ok := d.programs.Load(v.program); ok && p.(*program).born <= int64(v.begin_ns) {
			// a record from before p was created belongs to a closed program that had the same address
			one.Program, one.Step = p.(*program), int(v.step)
		}
	}
	slices.SortStableFunc(out.List, func(a, b device.Activity) int { return cmp.Compare(a.Begin, b.Begin) })
	return out, nil
}
