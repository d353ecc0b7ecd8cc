// machine.h: what this process may use of the machine.
#pragma once

#include <cstdint>
#include <string>

namespace hetero {

std::string cpu_model(); // as the maker calls it
int usable_cores(); // cores that the affinity mask and the control group leave us, one a core of SMT siblings; >= 1
int64_t usable_memory(); // bytes: the machine's or the control group's limit, the smaller

} // namespace hetero
