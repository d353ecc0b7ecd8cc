// notes.h: unusual behaviour of a device or library, for the log.
#pragma once

#include <mutex>
#include <string>

namespace hetero {

// Any thread may call any function at any time.
class Notes {
public:
  // Adds a text, once.
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
