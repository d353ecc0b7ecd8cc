// choices.h: chooses between kernels of several origins for one op, by timing.
//
// The first process of this machine that compiles such an op times the candidates on a sample of the op
// (choice_sample.h). It stores the choice on disk (choice_file.h). Later processes use the stored choice, so repeated
// runs are bit-equal. If the choice cannot be stored, the candidates are not timed, and the first one is used. The
// times do not include waiting for a CPU (Meter in team.h), so load hardly affects them.
//
// A choice depends on the op, the type, the dimensions, the number of threads, the CPU, and the versions of the
// kernels. Instead of the number of rows, it depends on the class of this number. The limits of classes are powers of
// two, and all large numbers are one class, so that a new share of the batch rarely needs a timing. The weight gradient
// of a linear layer has only one class. Its layout is that of optimizer state, so it must not depend on the share.
//
// A candidate that fails on the sample is removed, with a note. If the file of choices cannot be locked, the first
// candidate is used, because two processes that start at the same time could otherwise make different choices.
//
// HETERO_CPU_KERNELS selects kernels without timing, for tests and benchmarks. It is a list of names, separated by
// commas. The first name with a kernel for the op applies. Other ops are chosen as usual; with the name `guess` in the
// list they use the first candidate.
//
// HETERO_CPU_TIMES replaces the measured times, for tests: "tiles=5,onednn=3", in microseconds. A candidate without a
// time counts as slowest. These choices are stored in a separate file, which runs with measured times do not read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel.h"

namespace hetero {

struct Candidate {
  const char *name; // "tiles", "onednn" or "rows"
  Factory make;     // returns nullptr if these kernels do not support the request
};

// Names of candidates.
constexpr const char *kTiles = "tiles"; // the register tiles of panel_product.h, or the AMX tiles of tile_product.h
constexpr const char *kLibrary =
    "onednn"; // oneDNN's products and convolutions; plain kernels in a build without oneDNN
constexpr const char *kFloatRows = "rows"; // attention with products of f32

// Returns the faster kernel of two candidates, or nullptr if neither has a kernel. The best guess is own, or other if
// other_first is set. The op is a linear layer, the loss over a vocabulary, attention, or one of their gradients. If
// own does not support the request, nothing is timed.
std::unique_ptr<Kernel> fastest(const Request &r, Candidate own, Candidate other, bool other_first = false);

// Returns whether oneDNN computes the products of the request with AMX, which cannot multiply f32 numbers.
bool library_has_amx(const Request &r);

// Returns the reason why choices of this process are not timed, or "".
std::string choice_notes();

} // namespace hetero
