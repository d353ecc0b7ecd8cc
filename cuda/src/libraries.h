// libraries.h: CUDA's libraries (cuBLASLt, cuDNN, CUPTI), opened at run time from toolkits, Python packages and user
// folders. The program starts without them and reports which one is missing.
#pragma once

#include <cstdint>
#include <string>

namespace hetero {

struct LibraryName {
  const char *name; // "cuBLASLt", for error texts
  const char *file; // "libcublasLt.so.13"
  const char *pip;  // Python package with the library: "nvidia-cublas"
  bool toolkit; // whether it is part of the CUDA toolkit; since CUDA 13, such packages have no version in their name
};

// A library that stays open until the process ends. If another library opens this library by name, open this library
// first. cuDNN, for example, then uses the cuBLASLt that is already open.
class Library {
public:
  // Throws Unavailable with the file, the folders that were searched, and the remedy.
  explicit Library(const LibraryName &name);

  // Throws Unavailable if the library lacks the function.
  template <class Function> Function function(const char *symbol) const {
    return reinterpret_cast<Function>(address(symbol));
  }
  // Throws Unavailable unless the library's major version is that for which this program was built.
  void want_major(int64_t got, int64_t want) const;

  const std::string &path() const { return path_; }
  // Returns the Python package with the library, for the toolkit with which this program was built.
  std::string package() const;

private:
  void *address(const char *symbol) const;

  LibraryName name_;
  std::string path_; // path of the opened file
  void *handle_ = nullptr;
};

} // namespace hetero
