# Build settings of gorgonia.org/cu. Headers of this project come before those of CUDA, and libcuda.a of this project
# replaces the driver's library. <build>/cuda.env contains the environment for go. Without a toolkit, this file does
# not exist.
file(STRINGS "${PROJECT_SOURCE_DIR}/third_party/libcuda/names.txt" cuda_names REGEX "^cu[A-Z]")
list(TRANSFORM cuda_names REPLACE "(.+)" "ENTRY(\\1)")
list(JOIN cuda_names "\n" cuda_names)
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/cuda/names.inc" CONTENT "${cuda_names}\n" @ONLY)

add_library(hetero_libcuda STATIC "${PROJECT_SOURCE_DIR}/third_party/libcuda/forward.cc")
target_include_directories(hetero_libcuda PRIVATE "${PROJECT_BINARY_DIR}/cuda")
set_target_properties(hetero_libcuda PROPERTIES OUTPUT_NAME cuda ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/cuda")

# The package cu does not declare its C functions, and uses deprecated names of CUDA.
# file(CONFIGURE) of CMake 3.18 drops line ends.
string(CONFIGURE [[
export CGO_CFLAGS="'-I@PROJECT_SOURCE_DIR@/third_party/cuda_compat' '-I@cuda_root@/include' ${CGO_CFLAGS:--O2 -g} -Wno-deprecated-declarations -Wno-implicit-function-declaration"
export CGO_LDFLAGS="'-L@PROJECT_BINARY_DIR@/cuda' ${CGO_LDFLAGS:-}"
export GOFLAGS="$(go env GOFLAGS) -tags=cuda"
]] cuda_env @ONLY)
file(WRITE "${PROJECT_BINARY_DIR}/cuda.env" "${cuda_env}")
