// Package devicetest is the conformance suite that every device passes. It also runs single ops for tests.
//
//	func TestConformance(t *testing.T) {
//		devicetest.Run(conformance.Go(t), open, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}})
//	}
//
// # Checks
//
// Values: the suite compares every op with package reference, on shapes that are no multiples of block sizes. Each case
// runs twice under several layout policies (see [Policy]), in fresh memory full of NaN patterns. Afterwards the padding
// of private layouts must be zero, and all memory freed. Optimizers and dropout masks must agree bit for bit.
//
// Other checks:
//
//   - Losses and statistics do not depend on the number of threads.
//   - NaN reaches every dependent output.
//   - Streams, events, copies, timing and memory accounting obey the contract.
//   - Wrong arguments give an error that names the operand, never a crash.
//
// # Tolerance
//
// Inputs are rounded to the tested type once. The truth is the reference device in f64 on those inputs. plain is the
// reference device in f32 on the same inputs. ‖·‖ is the Euclidean norm over a tensor, and u = 2⁻²⁴:
//
//	f32 output:         ‖got - truth‖ ≤ 3·‖plain - truth‖ + floor·u·‖truth‖                    =: d
//	bf16 or f16 output: ‖got - truth‖ ≤ ‖round(truth) - truth‖ + 2·d
//	f64 output:         ‖got - truth‖ ≤ 2⁻⁴⁰·‖truth‖
//
// The floor covers plain results that are exact by chance; each kind of case states its floor with the reason. The
// second line holds because a value with error δ that is then rounded differs from the truth by at most |round(truth) -
// truth| + 2δ: either it rounds to the same number, or the truth is within δ of the midpoint between two numbers.
// Chains that store 16-bit tensors between ops are compared with the reference device with the same storage instead.
package devicetest
