// libraries.cc: searches for CUDA's libraries in this order:
//
//   1. $HETERO_CUDA_LIBS, folders separated by colons
//   2. the folder of this library
//   3. the loader's search path: LD_LIBRARY_PATH, ldconfig
//   4. lib64, lib and extras/CUPTI/lib64 of $CUDA_HOME and $CUDA_PATH
//   5. the nvidia/* packages of these installations of Python: the one into which pip has installed this program,
//     $VIRTUAL_ENV, the python3 in PATH, /usr/local, ~/.local
//   6. third_party/.cuda relative to the program and in this library's source tree, where `make cuda-toolchain` puts
//      them
//
// The first file that can be opened is used. The error names a file that exists but cannot be opened.
#include "libraries.h"

#include <cuda_runtime.h>
#include <dlfcn.h>
#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <vector>

#include "status.h"

namespace hetero {
namespace {

using Folders = std::vector<std::string>;

std::string variable(const char *name) {
  const char *text = std::getenv(name);
  return text ? text : "";
}

std::string folder_of(const std::string &path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Folders split(const std::string &list) {
  Folders parts;
  for (size_t from = 0; from <= list.size();) {
    const size_t to = std::min(list.find(':', from), list.size());
    if (to > from) parts.push_back(list.substr(from, to - from));
    from = to + 1;
  }
  return parts;
}

std::string our_folder() {
  Dl_info info{};
  return dladdr(reinterpret_cast<void *>(&our_folder), &info) && info.dli_fname ? folder_of(info.dli_fname) : "";
}

std::string program_folder() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  return n > 0 && n < PATH_MAX ? folder_of(std::string(path, static_cast<size_t>(n))) : "";
}

// Returns the folder with bin and lib of the first python3 in PATH.
std::string python_prefix() {
  for (const std::string &folder : split(variable("PATH")))
    if (access((folder + "/python3").c_str(), X_OK) == 0) return folder_of(folder);
  return "";
}

// Returns a pattern of glob(3) that matches only this name.
std::string literal(const std::string &name) {
  std::string pattern;
  for (char c : name) {
    if (std::string("*?[\\").find(c) != std::string::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Returns the folders to search before the loader's search path, as patterns of glob(3). more_folders returns those to
// search after it.
Folders first_folders() {
  Folders list;
  for (const std::string &folder : split(variable("HETERO_CUDA_LIBS"))) list.push_back(literal(folder));
  if (const std::string beside = our_folder(); !beside.empty()) list.push_back(literal(beside));
  return list;
}

Folders more_folders() {
  Folders list;
  for (const char *name : {"CUDA_HOME", "CUDA_PATH"})
    if (const std::string root = variable(name); !root.empty()) {
      for (const char *folder : {"/lib64", "/lib", "/extras/CUPTI/lib64"}) list.push_back(literal(root) + folder);
    }
  const std::string home = variable("HOME"), ours = our_folder();
  for (const std::string &prefix : {ours.empty() ? ours : ours + "/../..", variable("VIRTUAL_ENV"), python_prefix(),
                                    std::string("/usr/local"), home.empty() ? home : home + "/.local"})
    if (!prefix.empty()) list.push_back(literal(prefix) + "/lib/python3*/*-packages/nvidia/*/lib");
  for (const std::string &root : {program_folder(), ours.empty() ? ours : ours + "/../.."})
    if (!root.empty()) list.push_back(literal(root) + "/third_party/.cuda/nvidia/*/lib");
  return list;
}

std::string joined(const Folders &list) {
  std::string text;
  for (const std::string &s : list) text += (text.empty() ? "" : ", ") + s;
  return text;
}

// Opens the first of these files that can be opened. damaged collects the errors of files that exist but cannot be
// opened.
void *open_first(const Folders &patterns, const std::string &file, std::string &path, std::string &damaged) {
  void *handle = nullptr;
  for (const std::string &pattern : patterns) {
    glob_t found{};
    if (glob((pattern + "/" + file).c_str(), 0, nullptr, &found) == 0)
      for (size_t i = 0; i < found.gl_pathc && !handle; i++) {
        path = found.gl_pathv[i];
        if ((handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))) continue;
        const char *why = dlerror();
        damaged += "; " + (why ? why : path);
      }
    globfree(&found);
    if (handle) break;
  }
  return handle;
}

// Opens a file name without a folder through the loader.
void *open_by_name(const std::string &file, std::string &path, std::string &damaged) {
  path = file;
  if (void *handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  const char *why = dlerror();
  const std::string text = why ? why : "";
  if (text.rfind(file + ": cannot open shared object file", 0) != 0) damaged += "; " + text;
  return nullptr;
}

} // namespace

Library::Library(const LibraryName &name) : name_(name) {
  std::string damaged;
  const Folders first = first_folders(), more = more_folders();
  handle_ = open_first(first, name.file, path_, damaged);
  if (!handle_) handle_ = open_by_name(name.file, path_, damaged);
  if (!handle_) handle_ = open_first(more, name.file, path_, damaged);
  if (handle_) return;
  throw Unavailable(std::string("cuda: no ") + name.name + " (" + name.file + "): install it (pip install " +
                    package() + "), or set HETERO_CUDA_LIBS to the folder that holds it" + damaged + "; looked in " +
                    joined(first) + ", where the loader looks, " + joined(more));
}

void *Library::address(const char *symbol) const {
  if (void *p = dlsym(handle_, symbol)) return p;
  throw Unavailable(std::string("cuda: ") + name_.name + " in " + path_ + " has no function " + symbol +
                    ": install another version (pip install " + package() + ")");
}

std::string Library::package() const {
  constexpr int major = CUDART_VERSION / 1000;
  return std::string(name_.pip) + (name_.toolkit && major >= 13 ? "" : "-cu" + std::to_string(major));
}

void Library::want_major(int64_t got, int64_t want) const {
  if (got == want) return;
  throw Unavailable(std::string("cuda: ") + name_.name + " in " + path_ + ": got version " + std::to_string(got) +
                    ", want " + std::to_string(want) + ": install that one (pip install " + package() +
                    "), or name its folder in HETERO_CUDA_LIBS");
}

} // namespace hetero
