// machine.h: the resources that this process may use.
#pragma once

#include <cstdint>
#include <string>

namespace hetero {

std::string cpu_model(); // the manufacturer's name of the CPU
int usable_cores(); // number of cores, without SMT siblings, that the affinity mask and the control group allow; >= 1
int64_t usable_memory(); // bytes; the smaller of the machine's memory and the control group's limit

} // namespace hetero
