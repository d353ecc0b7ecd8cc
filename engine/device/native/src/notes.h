// notes.h: unusual behaviour of a device or library, for the log.
#pragma once

#include <mutex>
#include <string>

namespace hetero {

// Safe for concurrent use.
class Notes {
public:
  // Adds a text, unless it is already present.
  void add(const std::string &text) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (text_.find(text) == std::string::npos) text_ += (text_.empty() ? "" : "; ") + text;
  }
  std::string text() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_;
  }

private:
  mutable std::mutex mutex_;
  std::string text_;
};

} // namespace hetero
