// machine.cc: reads /proc, /sys and the control groups (v1 and v2).
#include "machine.h"

#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

namespace hetero {

namespace {

std::string first_line(const std::string &path) {
  std::ifstream f(path);
  std::string line;
  std::getline(f, line);
  return line;
}

// Returns the folder of this process's control group for a controller ("" for v2), or "" if there is none.
std::string group_path(const std::string &controller) {
  std::ifstream f("/proc/self/cgroup");
  for (std::string line; std::getline(f, line);) { // 4:cpu,cpuacct:/path or 0::/path
    size_t a = line.find(':'), b = line.find(':', a + 1);
    if (a == std::string::npos || b == std::string::npos) continue;
    std::stringstream names(line.substr(a + 1, b - a - 1));
    if (controller.empty() && names.str().empty()) return line.substr(b + 1);
    for (std::string name; std::getline(names, name, ',');)
      if (name == controller) return line.substr(b + 1);
  }
  return "";
}

// Calls visit for the group's folder below root and for each of its parents, because each of them may set a limit. In a
// container, the path may contain folders that exist only on the host. Such folders cannot be read, and are skipped.
template <class Visit> void walk_up(const std::string &root, std::string path, Visit visit) {
  for (;;) {
    visit(root + path);
    size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

// Returns the number at the start of text, or 0 if there is none ("max", or no such file).
double number(const std::string &text) { return std::strtod(text.c_str(), nullptr); }

// Returns the number of CPUs that the control groups allow, or infinity without a limit.
double cpu_quota() {
  double least = std::numeric_limits<double>::infinity();
  walk_up("/sys/fs/cgroup", group_path(""), [&](const std::string &folder) {
    std::stringstream s(first_line(folder + "/cpu.max"));
    std::string quota, period;
    s >> quota >> period;
    double q = number(quota), p = number(period);
    if (q > 0 && p > 0) least = std::min(least, q / p);
  });
  walk_up("/sys/fs/cgroup/cpu", group_path("cpu"), [&](const std::string &folder) {
    double q = number(first_line(folder + "/cpu.cfs_quota_us")), p = number(first_line(folder + "/cpu.cfs_period_us"));
    if (q > 0 && p > 0) least = std::min(least, q / p);
  });
  return least;
}

} // namespace

std::string cpu_model() {
  std::ifstream f("/proc/cpuinfo");
  for (std::string line; std::getline(f, line);)
    if (line.compare(0, 10, "model name") == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  utsname u{};
  uname(&u);
  return std::string(u.machine) + " CPU"; // on arm64, /proc/cpuinfo has no model name
}

int usable_cores() {
  std::set<std::string> cores; // one name per core, which its SMT siblings share
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
      if (CPU_ISSET(cpu, &set)) {
        std::string siblings =
            first_line("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
        cores.insert(siblings.empty() ? std::to_string(cpu) : siblings);
      }
  double n = cores.empty() ? static_cast<double>(sysconf(_SC_NPROCESSORS_ONLN)) : static_cast<double>(cores.size());
  return std::max(1, static_cast<int>(std::ceil(std::min(n, cpu_quota()))));
}

int64_t usable_memory() {
  auto least = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  auto lower = [&](const std::string &path) {
    double v = number(first_line(path));
    if (v > 0) least = std::min(least, v);
  };
  walk_up("/sys/fs/cgroup", group_path(""), [&](const std::string &folder) { lower(folder + "/memory.max"); });
  walk_up("/sys/fs/cgroup/memory", group_path("memory"),
          [&](const std::string &folder) { lower(folder + "/memory.limit_in_bytes"); });
  return static_cast<int64_t>(least);
}

} // namespace hetero
