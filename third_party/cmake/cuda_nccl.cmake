# The NVIDIA parts. libhetero_cuda.so holds the kernels of the GPU device but no convolutions yet, so nothing uses it, and it is built
# on demand only (CUDA=on). hetero_cuda_shim holds the same sources compiled for the host, for tests.
#
# A toolkit is looked for in CUDA_HOME or CUDA_PATH, beside the nvcc of PATH, in /usr/local/cuda, among the packages of the active Python
# (nvidia/cu13), and in third_party/.cuda, which `make cuda-toolchain` fills.
file(GLOB cuda_kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/cuda/src/*.cu")
hetero_sources(cuda_sources cuda/src)
set(cuda_includes "${PROJECT_SOURCE_DIR}/cuda/src" "${PROJECT_SOURCE_DIR}/engine/device/native" "${PROJECT_SOURCE_DIR}/engine/device/native/src")
list(GET HETERO_CUDA_ARCHS 0 cuda_lowest)

add_library(hetero_cuda_shim SHARED EXCLUDE_FROM_ALL ${cuda_kernels} ${cuda_sources} ${native_sources} "${PROJECT_SOURCE_DIR}/cuda/shim/shim.cc" "${PROJECT_SOURCE_DIR}/cuda/shim/streams.cc")
target_include_directories(hetero_cuda_shim PRIVATE "${PROJECT_SOURCE_DIR}/cuda/shim" ${cuda_includes})
target_compile_definitions(hetero_cuda_shim PRIVATE HETERO_CUDA_LOWEST_ARCH=75 HETERO_CUDA_BUILD="CUDA kernels compiled for the host")
set_source_files_properties(${cuda_kernels} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-xc++")
# The libraries that the device opens, as fakes: under other names than the real ones, which must never meet the shim.
get_directory_property(fake_link_options LINK_OPTIONS)
list(FILTER fake_link_options EXCLUDE REGEX "version-script")
add_library(hetero_fake_cudnn SHARED EXCLUDE_FROM_ALL "${PROJECT_SOURCE_DIR}/cuda/shim/cudnn.cc" "${PROJECT_SOURCE_DIR}/cuda/shim/cudnn_engines.cc")
set_target_properties(hetero_fake_cudnn PROPERTIES OUTPUT_NAME cudnn_fake SUFFIX ".so.9" NO_SONAME ON LINK_OPTIONS "${fake_link_options}")
target_include_directories(hetero_fake_cudnn PRIVATE "${PROJECT_SOURCE_DIR}/cuda/shim")
target_compile_definitions(hetero_cuda_shim PRIVATE HETERO_CUDA_LIBRARIES="_fake")
target_link_libraries(hetero_cuda_shim PRIVATE ${CMAKE_DL_LIBS})
add_dependencies(hetero_cuda_shim hetero_fake_cudnn)

if(NOT HETERO_CUDA STREQUAL "on")
  string(APPEND hetero_parts "cuda: off (its kernels are there, convolutions are not yet; make CUDA=on builds what there is)\n")
  return()
endif()

find_program(HETERO_PYTHON python3)
if(HETERO_PYTHON)
  execute_process(COMMAND "${HETERO_PYTHON}" -c "import sysconfig; print(sysconfig.get_paths()['purelib'])" OUTPUT_VARIABLE cuda_python OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
find_program(HETERO_NVCC nvcc NO_DEFAULT_PATH PATHS "$ENV{CUDA_HOME}/bin" "$ENV{CUDA_PATH}/bin")
find_program(HETERO_NVCC nvcc PATHS /usr/local/cuda/bin "${cuda_python}/nvidia/cu13/bin" "${PROJECT_SOURCE_DIR}/third_party/.cuda/nvidia/cu13/bin")
if(NOT HETERO_NVCC)
  message(FATAL_ERROR "CUDA=on, but there is no CUDA toolkit: set CUDA_HOME, or run: make cuda-toolchain (1.2 GB, no root needed)")
endif()
get_filename_component(cuda_root "${HETERO_NVCC}" DIRECTORY)
get_filename_component(cuda_root "${cuda_root}" DIRECTORY)
execute_process(COMMAND "${HETERO_NVCC}" --version OUTPUT_VARIABLE cuda_version)
string(REGEX REPLACE ".*release ([0-9.]+),.*" "\\1" cuda_version "${cuda_version}")
find_library(HETERO_CUDART libcudart_static.a PATHS "${cuda_root}/lib64" "${cuda_root}/lib" "${cuda_root}/targets/x86_64-linux/lib" NO_DEFAULT_PATH)
if(NOT HETERO_CUDART)
  message(FATAL_ERROR "the CUDA toolkit in ${cuda_root} has no libcudart_static.a")
endif()
find_path(HETERO_CUDNN cudnn.h PATHS "${cuda_root}/include" "${cuda_root}/../cudnn/include" "${cuda_python}/nvidia/cudnn/include"
  "${PROJECT_SOURCE_DIR}/third_party/.cuda/nvidia/cudnn/include")
if(NOT HETERO_CUDNN)
  message(FATAL_ERROR "CUDA=on, but there is no cudnn.h beside the toolkit in ${cuda_root}: install cuDNN 9 (pip install nvidia-cudnn-cu13), or run: make cuda-toolchain")
endif()

# Code for each architecture, and for the newest one PTX as well, which later GPUs translate.
set(cuda_code "")
foreach(arch IN LISTS HETERO_CUDA_ARCHS)
  list(APPEND cuda_code -gencode "arch=compute_${arch},code=sm_${arch}")
endforeach()
list(GET HETERO_CUDA_ARCHS -1 cuda_newest)
list(APPEND cuda_code -gencode "arch=compute_${cuda_newest},code=compute_${cuda_newest}")
set(cuda_flags "")
foreach(folder IN LISTS cuda_includes)
  list(APPEND cuda_flags -I "${folder}")
endforeach()
set(cuda_objects "")
foreach(kernel IN LISTS cuda_kernels)
  get_filename_component(name "${kernel}" NAME)
  set(object "${PROJECT_BINARY_DIR}/cuda/${name}.o")
  # No contraction: what an optimizer computes has the bits of every other device.
  add_custom_command(OUTPUT "${object}" DEPENDS "${kernel}" DEPFILE "${object}.d" COMMENT "nvcc ${name}"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${PROJECT_BINARY_DIR}/cuda"
    COMMAND "${HETERO_NVCC}" -std=c++17 -O3 --fmad=false ${cuda_code} -ccbin "${CMAKE_CXX_COMPILER}"
      -Xcompiler=-fPIC,-fvisibility=hidden,-ffp-contract=off,-fno-math-errno ${cuda_flags} -MD -MT "${object}" -MF "${object}.d" -c "${kernel}" -o "${object}")
  list(APPEND cuda_objects "${object}")
endforeach()
add_library(hetero_cuda SHARED ${cuda_objects} ${cuda_sources} ${native_sources})
target_include_directories(hetero_cuda PRIVATE ${cuda_includes})
target_include_directories(hetero_cuda SYSTEM PRIVATE "${cuda_root}/include" "${HETERO_CUDNN}")
target_compile_definitions(hetero_cuda PRIVATE HETERO_CUDA_LOWEST_ARCH=${cuda_lowest} HETERO_CUDA_BUILD="CUDA ${cuda_version}" HETERO_CUDA_LIBRARIES="")
target_link_libraries(hetero_cuda PRIVATE "${HETERO_CUDART}" dl rt pthread)
set_target_properties(hetero_cuda PROPERTIES LINK_DEPENDS "${hetero_exports}")
string(REPLACE ";" ", sm_" cuda_archs "${HETERO_CUDA_ARCHS}")
string(APPEND hetero_parts "cuda: kernels built (${cuda_version} in ${cuda_root}, sm_${cuda_archs}); not a device yet, convolutions are missing\n")
