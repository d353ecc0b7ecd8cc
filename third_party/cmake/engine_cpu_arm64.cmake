# libhetero_cpu.so on arm64: the CPU device, on its own kernels and OpenMP.
#
# oneDNN has no fast kernels for NEON, only for SVE or through the Arm Compute Library, and no package of Debian or PyPI
# contains both libraries. The products of gemm_arm64.h replace it.
if(HETERO_ONEDNN_DIR OR NOT HETERO_ONEDNN MATCHES "^(auto|off|OFF|0)$")
  message(FATAL_ERROR "HETERO_ONEDNN=${HETERO_ONEDNN} HETERO_ONEDNN_DIR=${HETERO_ONEDNN_DIR}: on arm64 the CPU device does not use oneDNN; "
    "leave both variables out")
endif()

hetero_sources(cpu_sources engine/device/cpu/src)
hetero_sources(native_sources engine/device/native/src)
add_library(hetero_cpu SHARED ${cpu_sources} ${native_sources})
target_include_directories(hetero_cpu PRIVATE "${PROJECT_SOURCE_DIR}/engine/device/native" "${PROJECT_SOURCE_DIR}/engine/device/native/src")
set_target_properties(hetero_cpu PROPERTIES LINK_DEPENDS "${hetero_exports}")
target_compile_definitions(hetero_cpu PRIVATE HT_HAVE_ONEDNN=0)

# With GCC, the kernels run on the worker pool of engine/device/cpu/src/team.cc.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(cpu_openmp "own threads")
  target_compile_definitions(hetero_cpu PRIVATE HT_OWN_TEAM=1)
  target_compile_options(hetero_cpu PRIVATE -fopenmp)
  target_link_options(hetero_cpu PRIVATE -Wl,-Bsymbolic-functions)
else()
  find_package(OpenMP COMPONENTS CXX)
  if(NOT OpenMP_CXX_FOUND)
    message(FATAL_ERROR "the C++ compiler ${CMAKE_CXX_COMPILER} has no OpenMP; run: sudo apt-get install g++ && make clean && make CXX=g++")
  endif()
  set(cpu_openmp "${CMAKE_CXX_COMPILER_ID}'s OpenMP")
  target_compile_definitions(hetero_cpu PRIVATE HT_OWN_TEAM=0)
  target_link_libraries(hetero_cpu PRIVATE OpenMP::OpenMP_CXX)
endif()
string(APPEND hetero_parts "cpu: on (NEON, ${cpu_openmp}${hetero_note})\n")
