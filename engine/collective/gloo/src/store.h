// store.h: the store through which Gloo's ranks find each other, served by the program: what Gloo sets or asks for is
// passed on, what was asked for comes back by put.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <gloo/rendezvous/store.h>

namespace hetero {

class Store : public gloo::rendezvous::Store {
public:
  struct Wish {
    bool set;
    std::string key;
    std::vector<char> value;
  };

  // Gloo calls these.
  void set(const std::string &key, const std::vector<char> &value) override;
  std::vector<char> get(const std::string &key) override;
  void wait(const std::vector<std::string> &keys) override { wait(keys, kDefaultTimeout); }
  void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) override;

  // The program calls these.
  bool next(Wish &wish); // false when ended
  void put(const std::string &key, std::vector<char> value);
  void end(); // nothing is wanted any more; who waits gives up

private:
  void ask(const std::string &key);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::vector<char>> values_;
  std::map<std::string, bool> asked_;
  std::deque<Wish> wishes_;
  bool ended_ = false;
};

} // namespace hetero
