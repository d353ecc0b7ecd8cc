// ops.h: the kernel factories of a native device, one per op. Each library defines all of them, in the file (.cc or
// .cu) that is named above a group of factories. ops.cc maps op numbers to factories.
//
// A factory checks the specs that it depends on. It throws Invalid for a wrong argument, and Unsupported if it has no
// kernel. The engine has already checked the number and the shapes of the operands.
#pragma once

#include <memory>

#include "kernel.h"

namespace hetero {

// conv
std::unique_ptr<Kernel> make_conv2d(const Request &);
std::unique_ptr<Kernel> make_conv2d_diff_src(const Request &);
std::unique_ptr<Kernel> make_conv2d_diff_weights(const Request &);
// linear
std::unique_ptr<Kernel> make_linear(const Request &);
std::unique_ptr<Kernel> make_linear_diff_src(const Request &);
std::unique_ptr<Kernel> make_linear_diff_weights(const Request &);
// reorder, or move
std::unique_ptr<Kernel> make_reorder(const Request &);
// batchnorm
std::unique_ptr<Kernel> make_batch_norm_stats(const Request &);
std::unique_ptr<Kernel> make_batch_norm_merge(const Request &);
std::unique_ptr<Kernel> make_batch_norm_apply(const Request &);
std::unique_ptr<Kernel> make_batch_norm_diff_reduce(const Request &);
std::unique_ptr<Kernel> make_batch_norm_diff_apply(const Request &);
std::unique_ptr<Kernel> make_batch_norm_running(const Request &);
// pool
std::unique_ptr<Kernel> make_max_pool2d(const Request &);
std::unique_ptr<Kernel> make_max_pool2d_diff(const Request &);
std::unique_ptr<Kernel> make_avg_pool2d(const Request &);
std::unique_ptr<Kernel> make_avg_pool2d_diff(const Request &);
std::unique_ptr<Kernel> make_global_avg_pool(const Request &);
std::unique_ptr<Kernel> make_global_avg_pool_diff(const Request &);
// elementwise
std::unique_ptr<Kernel> make_unary(const Request &);
std::unique_ptr<Kernel> make_unary_diff(const Request &);
std::unique_ptr<Kernel> make_binary(const Request &);
std::unique_ptr<Kernel> make_scale(const Request &);
std::unique_ptr<Kernel> make_fill(const Request &);
// dropout
std::unique_ptr<Kernel> make_dropout(const Request &);
// move
std::unique_ptr<Kernel> make_transpose(const Request &);
std::unique_ptr<Kernel> make_reshape(const Request &);
std::unique_ptr<Kernel> make_concat(const Request &);
std::unique_ptr<Kernel> make_slice(const Request &);
std::unique_ptr<Kernel> make_pad(const Request &);
std::unique_ptr<Kernel> make_reduce(const Request &);
std::unique_ptr<Kernel> make_broadcast(const Request &);
// loss
std::unique_ptr<Kernel> make_softmax_cross_entropy(const Request &);
std::unique_ptr<Kernel> make_softmax_cross_entropy_diff(const Request &);
// image_normalize
std::unique_ptr<Kernel> make_image_normalize(const Request &);
// optim
std::unique_ptr<Kernel> make_sum_squares(const Request &);
std::unique_ptr<Kernel> make_grad_control(const Request &);
std::unique_ptr<Kernel> make_sgd(const Request &);
std::unique_ptr<Kernel> make_adamw(const Request &);
std::unique_ptr<Kernel> make_moving_average(const Request &);
// embedding
std::unique_ptr<Kernel> make_embedding(const Request &);
std::unique_ptr<Kernel> make_embedding_diff(const Request &);
// layernorm
std::unique_ptr<Kernel> make_layer_norm(const Request &);
std::unique_ptr<Kernel> make_layer_norm_diff(const Request &);
std::unique_ptr<Kernel> make_bias_gelu(const Request &);
std::unique_ptr<Kernel> make_bias_gelu_diff(const Request &);
// attention
std::unique_ptr<Kernel> make_attention(const Request &);
std::unique_ptr<Kernel> make_attention_diff(const Request &);
std::unique_ptr<Kernel> make_attention_step(const Request &);
// linear_loss
std::unique_ptr<Kernel> make_linear_cross_entropy(const Request &);
std::unique_ptr<Kernel> make_linear_cross_entropy_diff(const Request &);

} // namespace hetero
