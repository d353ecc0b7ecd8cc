// Package devicetest is the conformance test suite that every device must pass. It also provides functions with which
// tests run single ops.
//
//	func TestConformance(t *testing.T) {
//		devicetest.Run(conformance.Go(t), open, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}})
//	}
//
// # Checks
//
// Values: the suite compares every op with package reference, on shapes that are not multiples of block sizes. Each
// case runs under several layout policies (see [Policy]), in fresh memory full of NaN patterns. A second run of a case
// must have bit-equal results. The types in [Caps].Brief have only one policy and no second run. Afterwards, the
// padding of private layouts must be zero, and all memory must be freed. The results of optimizers and dropout masks
// must be bit-equal to those of package reference.
//
// Other checks:
//
//   - Losses and statistics do not depend on the number of threads.
//   - A NaN reaches every dependent output.
//   - Streams, events, copies, timing and memory accounting obey the contract.
//   - A wrong argument gives an error that names the operand; it never causes a crash.
//
// # Tolerance
//
// Inputs are first rounded to the tested type. For these inputs, truth is the output of the reference device in f64,
// plain is its output in f32, and got is the output of the tested device. ‖·‖ is the Euclidean norm over a tensor, and
// u = 2⁻²⁴:
//
//	f32 output:         ‖got - truth‖ ≤ 3·‖plain - truth‖ + floor·u·max(‖truth‖, ‖terms‖)      =: d
//	bf16 or f16 output: ‖got - truth‖ ≤ (1 + inner)·‖round(truth) - truth‖ + 2·d
//	f64 output:         ‖got - truth‖ ≤ 2⁻⁴⁰·‖truth‖
//
// The floor is needed because plain results may be exact by chance. Each kind of case states its floor with the reason.
//
// For ops in which terms can cancel, terms are the terms whose sum is the output. For example, GELU adds 1 to a
// function that approaches -1, and the gradient of attention to a single key subtracts two equal sums. Even if the
// result is small, it has the rounding errors of the terms.
//
// The bound for bf16 and f16 has this reason: if a value with error δ is rounded, the result differs from the truth by
// at most |round(truth) - truth| + 2δ. Either the value rounds to the same number as the truth, or the truth is within
// δ of the midpoint between two numbers. If a chain of ops stores 16-bit tensors in between, it is instead compared
// with the reference device with the same storage types.
package devicetest
