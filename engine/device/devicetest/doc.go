// Package devicetest is the conformance suite that every device passes, and small means to try single ops.
//
//	func TestConformance(t *testing.T) {
//		devicetest.Run(conformance.Go(t), open, devicetest.Caps{Types: []tensor.DType{tensor.F32, tensor.BF16}})
//	}
//
// # What is checked
//
// Values: every op, on shapes that are multiples of nothing, against package reference. Each case runs under
// several layout policies (see [Policy]), with fresh memory full of NaN patterns, twice; the padding of
// private layouts must be zero afterwards and all memory given back. Optimizers and dropout masks must
// agree bit for bit. Then: losses and statistics do not depend on the number of threads, NaN is never
// swallowed, streams, events, copies, timing, memory accounting, and a table of wrong arguments, each of which
// must be an error that names the operand and never a crash.
//
// # Tolerance
//
// Inputs are rounded to the tested type once. The truth is the reference device in f64 on those inputs. plain is
// the reference device in f32 on the same inputs. With ‖·‖ the Euclidean norm over a tensor and u = 2⁻²⁴:
//
//	f32 output:         ‖got - truth‖ ≤ 3·‖plain - truth‖ + floor·u·‖truth‖                    =: d
//	bf16 or f16 output: ‖got - truth‖ ≤ ‖round(truth) - truth‖ + 2·d
//	f64 output:         ‖got - truth‖ ≤ 2⁻⁴⁰·‖truth‖
//
// The floor is there because a plain result may be exact by luck; it stands, with its reason, beside each
// kind of case. In the second line, a value computed with an error δ and then rounded differs from the truth
// by at most |round(truth) - truth| + 2δ: either it rounds to the same number, or the truth is within δ of the
// middle between two numbers. Chains that store 16-bit tensors between ops are measured against the reference
// device with the same storage instead.
package devicetest
