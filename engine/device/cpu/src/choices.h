// choices.h: chooses the kernel of an op by timing candidates: kernels of this library and of oneDNN.
//
// The first process of this machine that compiles such an op times the candidates on a sample of the op
// (choice_sample.h). It stores the choice on disk (choice_file.h). Later processes use the stored choice, so repeated
// runs are bit-equal. The times do not include waits for a CPU (see Meter in team.h), so other load on the machine
// hardly affects them.
//
// If the choice cannot be stored, or the file cannot be locked, the candidates are not timed, and the first one is
// used. Otherwise two processes could make different choices.
//
// A choice depends on the op, the type, the dimensions, the number of threads, the CPU, and the versions of the
// kernels. Instead of the exact number of rows, it depends on the class of this number. The limits of classes are
// powers of two, and all large numbers are one class. A change of the share therefore rarely needs new timings. The
// weight gradient of a linear layer has only one class: its layout is also that of optimizer state, so it must not
// depend on the share.
//
// A candidate that fails on the sample is removed, with a note.
//
// HETERO_CPU_KERNELS selects kernels without timing, for tests and benchmarks. It is a list of names, separated by
// commas. An op uses the first name in the list that has a kernel for it. If there is no such name, and the list
// contains `guess`, the op uses the first candidate. Otherwise its kernel is chosen as usual.
//
// HETERO_CPU_TIMES replaces the measured times, for tests: "tiles=5,onednn=3", in microseconds. A candidate without a
// time counts as the slowest one. These choices are stored in a separate file. Runs with measured times do not read
// this file.
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

// Returns the faster kernel of two candidates, or nullptr if neither has a kernel. Without timing, it returns the
// kernel of `own`, or of `other` if other_first is set. If `own` does not support the request, nothing is timed. The op
// is a linear layer, a convolution, the loss over a vocabulary, attention, or one of their gradients.
std::unique_ptr<Kernel> fastest(const Request &r, Candidate own, Candidate other, bool other_first = false);

// Returns whether oneDNN computes the products of the request with AMX, which cannot multiply f32 numbers.
bool library_has_amx(const Request &r);

// Returns the reason why this process does not time candidates, or "".
std::string choice_notes();

} // namespace hetero
