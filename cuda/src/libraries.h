// libraries.h: CUDA's libraries (cuBLASLt, cuDNN, CUPTI), opened at run time from where toolkits, Python packages and users put them, so that
// the program starts without them and says what is missing.
#pragma once

#include <cstdint>
#include <string>

namespace hetero {

struct LibraryName {
  const char *name; // "cuBLASLt", for texts
  const char *file; // "libcublasLt.so.13"
  const char *pip;  // what brings it: "nvidia-cublas"
  bool toolkit;     // part of the CUDA toolkit: from 13 on such packages are named without its version
};

// A library that stays open until the process ends. One that others open by name must be opened before them: cuDNN takes the cuBLASLt
// that is there already.
class Library {
public:
  // Throws Unavailable, saying what was looked for, where, and what to do.
  explicit Library(const LibraryName &name);

  // Throws Unavailable where the library has no such function.
  template <class Function> Function function(const char *symbol) const {
    return reinterpret_cast<Function>(address(symbol));
  }
  // Throws Unavailable unless the library's major version is the one that this program was built for.
  void want_major(int64_t got, int64_t want) const;

  const std::string &path() const { return path_; }
  // The Python package that brings it for the toolkit that this program was built with.
  std::string package() const;

private:
  void *address(const char *symbol) const;

  LibraryName name_;
  std::string path_; // as opened
  void *handle_ = nullptr;
};

} // namespace hetero
