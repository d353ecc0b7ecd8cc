//go:build cgo && linux

package native

// #include "bridge.h"
import "C"

import (
	"fmt"
	"reflect"
	"strings"
	"unsafe"

	"github.com/hetero-train/hetero-train/engine/device"
	"github.com/hetero-train/hetero-train/engine/tensor"
)

// nativeOp is a row of HT_OPS in hetero_device.h.
type nativeOp struct {
	code   C.int32_t
	params reflect.Type // the type of the C struct
}

// nativeOps maps kinds of ops to their rows.
var nativeOps = func() map[string]nativeOp {
	ops := map[string]nativeOp{}
	list := reflect.TypeFor[C.ht_op_params]()
	for i := range list.NumField() {
		ops[list.Field(i).Name] = nativeOp{C.HT_OP_NONE + 1 + C.int32_t(i), list.Field(i).Type}
	}
	return ops
}()

// Fails to compile unless the last constants of the functions have the same values in Go and in C.
var (
	_ = [1]struct{}{}[device.Abs-C.HT_ABS]
	_ = [1]struct{}{}[device.Min-C.HT_MIN]
	_ = [1]struct{}{}[device.Maximum-C.HT_MAXIMUM]
)

// parameters returns an op's number and its parameter struct, which it allocates in the arena. op.Infer has checked the
// values.
func parameters(a *arena, op device.Op) (C.int32_t, unsafe.Pointer, uintptr, error) {
	to, ok := nativeOps[op.Kind()]
	if !ok || !device.Builtin(op) {
		return 0, nil, 0, fmt.Errorf("%w: op type %T", device.ErrUnsupported, op)
	}
	if to.params == reflect.TypeFor[C.ht_no_params]() {
		return to.code, nil, 0, encode(a, reflect.ValueOf(&struct{}{}).Elem(), device.Parameters(op))
	}
	params := a.alloc(to.params.Size())
	return to.code, params, to.params.Size(), encode(a, reflect.NewAt(to.params, params).Elem(), device.Parameters(op))
}

// encode copies the fields of a Go struct to a C struct in the arena, by name. Fields of the C struct without a
// counterpart stay zero. A Go field without a counterpart in C is an error, unless the specs of the operands contain
// its value.
func encode(a *arena, to reflect.Value, params any) error {
	fields, sent := map[string]reflect.Value{}, map[string]bool{}
	from := reflect.ValueOf(params)
	for _, f := range reflect.VisibleFields(from.Type()) {
		if !f.Anonymous {
			fields[lettersOf(f.Name)], sent[lettersOf(f.Name)] = from.FieldByIndex(f.Index), inSpecs(f)
		}
	}
	for i := range to.NumField() {
		name := lettersOf(to.Type().Field(i).Name)
		// the fields of C structs are not exported, so Set needs this detour
		dst := reflect.NewAt(to.Field(i).Type(), to.Field(i).Addr().UnsafePointer()).Elem()
		if list := fields[strings.TrimPrefix(name, "num")]; list.IsValid() && list.Kind() == reflect.Slice &&
			strings.HasPrefix(name, "num") {
			dst.SetInt(int64(list.Len()))
		} else if value := fields[name]; value.IsValid() {
			if err := encodeValue(a, dst, value); err != nil {
				return fmt.Errorf("parameter %s: %w", name, err)
			}
			sent[name] = true
		}
	}
	for name, ok := range sent {
		if !ok {
			return fmt.Errorf("field %s of %T has no counterpart in %s", name, params, to.Type())
		}
	}
	return nil
}

// lettersOf returns a name in lower case without underscores. In this form, corresponding names of Go and C are equal.
func lettersOf(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// inSpecs reports whether the specs of an op's operands contain the value of a field, which is the type or an extent of
// the result.
func inSpecs(f reflect.StructField) bool {
	return f.Type == reflect.TypeFor[tensor.DType]() || f.Type == reflect.TypeFor[tensor.Shape]() ||
		f.Name == "Height" || f.Name == "Width"
}

// encodeValue copies one value. It allocates lists in the arena.
func encodeValue(a *arena, to, from reflect.Value) error {
	switch to.Kind() {
	case reflect.Pointer:
		element := to.Type().Elem()
		if from.Len() == 0 {
			return nil
		}
		list := reflect.NewAt(reflect.ArrayOf(from.Len(), element), a.alloc(uintptr(from.Len())*element.Size()))
		to.Set(reflect.NewAt(element, list.UnsafePointer()))
		return encodeValue(a, list.Elem(), from)
	case reflect.Array:
		if from.Len() > to.Len() {
			return fmt.Errorf("got %d values, want at most %d", from.Len(), to.Len())
		}
		for i := range from.Len() {
			if err := encodeValue(a, to.Index(i), from.Index(i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.Struct:
		return encode(a, to, from.Interface())
	case reflect.Float32, reflect.Float64:
		to.SetFloat(from.Float())
		return nil
	case reflect.Uint32:
		to.SetUint(from.Uint())
		return nil
	}
	var n int64
	switch from.Kind() {
	case reflect.Bool:
		if from.Bool() {
			n = 1
		}
	default:
		n = from.Int()
	}
	if to.OverflowInt(n) {
		return fmt.Errorf("got %d, want an integer of %d bits", n, to.Type().Bits())
	}
	to.SetInt(n)
	return nil
}
