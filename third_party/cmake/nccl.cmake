# libhetero_nccl.so: collectives between GPUs. The library opens NCCL at run time. The build needs the header of NCCL
# and the CUDA run-time library.
#
# For tests, hetero_nccl_shim contains the same sources, compiled for the host with the headers of cuda/shim and
# nccl/shim. It opens hetero_nccl_fake in place of NCCL.
hetero_sources(nccl_sources nccl/src)
list(APPEND nccl_sources "${PROJECT_SOURCE_DIR}/cuda/src/check.cc" "${PROJECT_SOURCE_DIR}/cuda/src/libraries.cc")
set(nccl_includes "${PROJECT_SOURCE_DIR}/nccl" "${PROJECT_SOURCE_DIR}/nccl/src" "${PROJECT_SOURCE_DIR}/cuda/src" "${PROJECT_SOURCE_DIR}/engine/device/native"
  "${PROJECT_SOURCE_DIR}/engine/device/native/src")
set(nccl_shims "${PROJECT_SOURCE_DIR}/nccl/shim" "${PROJECT_SOURCE_DIR}/cuda/shim")

add_library(hetero_nccl_fake SHARED EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/nccl/shim/fake.cc" "${PROJECT_SOURCE_DIR}/nccl/shim/board.cc")
target_include_directories(hetero_nccl_fake PRIVATE ${nccl_shims})
set_target_properties(hetero_nccl_fake PROPERTIES OUTPUT_NAME nccl_fake SUFFIX ".so.2" NO_SONAME ON LINK_OPTIONS "${fake_link_options}")
add_library(hetero_nccl_shim SHARED EXCLUDE_FROM_ALL ${nccl_sources} "${PROJECT_SOURCE_DIR}/cuda/shim/shim.cc" "${PROJECT_SOURCE_DIR}/cuda/shim/streams.cc")
target_include_directories(hetero_nccl_shim PRIVATE ${nccl_shims} ${nccl_includes})
target_compile_definitions(hetero_nccl_shim PRIVATE HETERO_CUDA_LIBRARIES="_fake")
target_link_libraries(hetero_nccl_shim PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(hetero_nccl_shim hetero_nccl_fake)

if(NOT cuda_root)
  hetero_off(nccl "no CUDA toolkit, or CUDA is off: GPUs of several ranks exchange gradients through the CPUs")
  return()
endif()
unset(NCCL_INCLUDE_DIR CACHE)
find_path(NCCL_INCLUDE_DIR nccl.h PATHS "$ENV{NCCL_HOME}/include" "${cuda_root}/include" "${cuda_root}/../nccl/include" "${cuda_python}/nvidia/nccl/include" NO_CMAKE_FIND_ROOT_PATH)
mark_as_advanced(NCCL_INCLUDE_DIR)
if(NOT NCCL_INCLUDE_DIR)
  hetero_off(nccl "no nccl.h in NCCL_HOME or next to the CUDA toolkit, so GPUs of several ranks exchange gradients through the CPUs; run: make cuda-toolchain")
  return()
endif()
hetero_probe(nccl_works nccl.cc INCLUDES ${nccl_includes} "${cuda_root}/include" "${NCCL_INCLUDE_DIR}")
if(NOT nccl_works)
  hetero_off(nccl "the NCCL in ${NCCL_INCLUDE_DIR} is too old or damaged, so GPUs of several ranks exchange gradients through the CPUs: ${nccl_works_reason}")
  return()
endif()
file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_lines REGEX "#define NCCL_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" nccl_version "${nccl_lines}")
add_library(hetero_nccl SHARED ${nccl_sources})
target_include_directories(hetero_nccl PRIVATE ${nccl_includes})
target_include_directories(hetero_nccl SYSTEM PRIVATE "${cuda_root}/include" "${NCCL_INCLUDE_DIR}")
target_link_libraries(hetero_nccl PRIVATE "${HETERO_CUDART}" dl rt pthread)
set_target_properties(hetero_nccl PROPERTIES LINK_DEPENDS "${hetero_exports}")
string(APPEND hetero_parts "nccl: on (built for NCCL ${nccl_version}, opened at run time${hetero_note})\n")
