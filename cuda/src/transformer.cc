// transformer.cc: the ops of transformers. This device has no kernels for them: the planner uses the decompositions of
// those that have one, and refuses models with the others.
#include "ops.h"

namespace hetero {

namespace {
[[noreturn]] std::unique_ptr<Kernel> refuse() { throw Unsupported("this device has no kernels for transformers"); }
} // namespace

std::unique_ptr<Kernel> make_embedding(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_embedding_diff(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_layer_norm(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_layer_norm_diff(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_bias_gelu(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_bias_gelu_diff(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_attention(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_attention_diff(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_linear_cross_entropy(const Request &) { refuse(); }
std::unique_ptr<Kernel> make_linear_cross_entropy_diff(const Request &) { refuse(); }

} // namespace hetero
