// store.cc
#include "store.h"

#include <algorithm>

#include <gloo/common/error.h>

namespace hetero {

void Store::set(const std::string &key, const std::vector<char> &value) {
  std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = value;
  wishes_.push_back({true, key, value});
  changed_.notify_all();
}

// ask wants the lock held.
void Store::ask(const std::string &key) {
  if (values_.count(key) || asked_[key]) return;
  asked_[key] = true;
  wishes_.push_back({false, key, {}});
  changed_.notify_all();
}

std::vector<char> Store::get(const std::string &key) {
  wait({key}, kDefaultTimeout);
  std::lock_guard<std::mutex> lock(mutex_);
  return values_[key];
}

void Store::wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  for (const std::string &key : keys) ask(key);
  auto ready = [&] {
    return ended_ ||
           std::all_of(keys.begin(), keys.end(), [&](const std::string &key) { return values_.count(key) > 0; });
  };
  if (!changed_.wait_for(lock, timeout, ready))
    throw gloo::IoException("the other ranks did not say where they are in time");
  if (ended_) throw gloo::IoException("stopped");
}

bool Store::next(Wish &wish) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return ended_ || !wishes_.empty(); });
  if (wishes_.empty()) return false;
  wish = std::move(wishes_.front());
  wishes_.pop_front();
  return true;
}

void Store::put(const std::string &key, std::vector<char> value) {
  std::lock_guard<std::mutex> lock(mutex_);
  values_[key] = std::move(value);
  changed_.notify_all();
}

void Store::end() {
  std::lock_guard<std::mutex> lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

} // namespace hetero
