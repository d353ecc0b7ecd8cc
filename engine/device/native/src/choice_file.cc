// choice_file.cc: one line per choice, with key, name and times, separated by tabs.
#include "choice_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

namespace hetero {
namespace {

// Largest file that is read, in bytes. It has space for a few thousand choices.
constexpr size_t kMostBytes = size_t{1} << 20;
constexpr int kLockSeconds = 120; // limit of the wait for the lock; longer than any comparison
const char *const kHeader = "hetero-train choices 1";

// Returns the folder of the user's caches; "" if unknown.
std::string cache_folder() {
  const char *xdg = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (xdg && *xdg == '/') return xdg;
  return home && *home ? std::string(home) + "/.cache" : "";
}

} // namespace

std::string choice_folder() {
  std::string folder = cache_folder();
  if (folder.empty()) return folder;
  mkdir(folder.c_str(), 0755);
  for (const char *part : {"/hetero-train", "/choices"}) mkdir((folder += part).c_str(), 0755);
  return folder;
}

std::string file_name_of(std::string text) {
  for (char &c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '.' && c != '-') c = '_';
  return text;
}

Choices read_choices(const std::string &path) {
  Choices list;
  std::ifstream in(path, std::ios::binary);
  std::string text(kMostBytes, 0);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(in.gcount()));
  if (!in.eof()) return list;
  // Drop a last line without a line end: it was not written completely.
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
  std::istringstream lines(text);
  std::string line;
  if (!std::getline(lines, line) || line != kHeader) return list;
  while (std::getline(lines, line)) {
    const size_t a = line.find('\t'), b = a == std::string::npos ? a : line.find('\t', a + 1);
    if (b == std::string::npos || line.find('\t', b + 1) != std::string::npos) continue;
    list[line.substr(0, a)] = {line.substr(a + 1, b - a - 1), line.substr(b + 1)};
  }
  return list;
}

bool write_choices(const std::string &path, const Choices &choices) {
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  {
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out << kHeader << '\n';
    for (const auto &[key, choice] : choices) out << key << '\t' << choice.name << '\t' << choice.times << '\n';
    out.flush();
    if (!out) {
      unlink(temporary.c_str());
      return false;
    }
  }
  if (rename(temporary.c_str(), path.c_str()) == 0) return true;
  unlink(temporary.c_str());
  return false;
}

ChoiceLock::ChoiceLock(const std::string &folder) {
  if (folder.empty()) {
    failure_ = "there is no folder for the lock";
    return;
  }
  const std::string path = folder + "/lock";
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file_ < 0) {
    failure_ = "open " + path + ": " + std::strerror(errno);
    return;
  }
  const timespec nap{0, 10'000'000};
  for (int i = 0; i < kLockSeconds * 100; i++) {
    if (flock(file_, LOCK_EX | LOCK_NB) == 0) return;
    if (errno != EWOULDBLOCK && errno != EINTR) {
      failure_ = "lock " + path + ": " + std::strerror(errno);
      return;
    }
    nanosleep(&nap, nullptr);
  }
  failure_ = "another process has held " + path + " for " + std::to_string(kLockSeconds) + " s";
}

ChoiceLock::~ChoiceLock() {
  if (file_ >= 0) close(file_);
}

} // namespace hetero
