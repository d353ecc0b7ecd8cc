// choice_file.h: the kernels that were fastest when they were timed, stored on disk for all processes of one machine.
//
// The folder <user's cache folder>/hetero-train/choices contains one file per kind of device. Users may delete the
// files.
#pragma once

#include <map>
#include <string>

namespace hetero {

struct StoredChoice {
  std::string name, times; // name of the fastest candidate; measured times, only for human readers
};

// Keys, names and times contain no tabs and no line ends.
using Choices = std::map<std::string, StoredChoice>; // by key

// Returns the folder of the choices, and creates it if it is missing. Returns "" if neither XDG_CACHE_HOME nor HOME is
// set.
std::string choice_folder();

// Returns text with '_' in place of each character that does not suit a file name.
std::string file_name_of(std::string text);

// Reads a file. A file that is missing, damaged or of another version counts as empty. Damaged lines are ignored.
Choices read_choices(const std::string &path);

// Replaces the file atomically. Returns false if the system refuses.
bool write_choices(const std::string &path, const Choices &choices);

// Prevents other processes of this machine from timing kernels at the same time. The wait for the lock is limited, so
// that a process that hangs does not block other processes forever. The lock is not held in these cases: the wait was
// too long, the folder is "" or cannot be written, or the file system does not support locks.
class ChoiceLock {
public:
  explicit ChoiceLock(const std::string &folder);
  ~ChoiceLock();
  ChoiceLock(const ChoiceLock &) = delete;
  ChoiceLock &operator=(const ChoiceLock &) = delete;

  bool held() const { return failure_.empty(); }
  const std::string &failure() const { return failure_; } // why the lock is not held

private:
  int file_ = -1;
  std::string failure_;
};

} // namespace hetero
