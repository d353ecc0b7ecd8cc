# Decides whether an optional library can be used, by compiling what this project uses of the library. Versions are not
# enough: all versions of Gloo have the same number, and a library may be damaged or made for another processor.

# hetero_probe(<variable> <file> [INCLUDES <folder>…] [LIBRARIES <file>…] [DEFINITIONS <name>…]) compiles and links
# third_party/cmake/probes/<file>. It sets:
#
#   <variable>          true if the file compiles and links
#   <variable>_reason   otherwise the first error of the compiler
#   <variable>_key      changes if the library, the compiler or the probe changes. Targets that use the library get this
#                       key as a definition, so they are compiled again after an upgrade. Packages keep the old times of
#                       their files, so make cannot notice an upgrade
#
# The cache keeps the result until the key changes.
function(hetero_probe variable file)
  cmake_parse_arguments(PARSE_ARGV 2 probe "" "" "INCLUDES;LIBRARIES;DEFINITIONS")
  set(source "${PROJECT_SOURCE_DIR}/third_party/cmake/probes/${file}")
  set(key "${CMAKE_CXX_COMPILER} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_CXX_FLAGS} ${probe_INCLUDES} ${probe_LIBRARIES} ${probe_DEFINITIONS}")
  foreach(folder IN LISTS probe_INCLUDES)
    file(GLOB headers "${folder}/*.h" "${folder}/gloo/*.h" "${folder}/gloo/transport/tcp/*.h" "${folder}/oneapi/dnnl/*.h*")
    # A folder such as /usr/include has headers of many packages.
    list(FILTER headers INCLUDE REGEX "/(gloo|oneapi|turbojpeg|cudnn|cublasLt|cuda|cuda_runtime|cupti|nccl)[^/]*(/.*)?$")
    list(APPEND probe_LIBRARIES_AND_HEADERS ${headers})
  endforeach()
  foreach(part IN LISTS probe_LIBRARIES probe_LIBRARIES_AND_HEADERS ITEMS "${source}")
    get_filename_component(real "${part}" REALPATH)
    if(EXISTS "${real}" AND NOT IS_DIRECTORY "${real}")
      file(TIMESTAMP "${real}" time UTC)
      file(SIZE "${real}" bytes)
      string(APPEND key " ${real} ${time} ${bytes}")
    endif()
  endforeach()
  string(SHA256 key "${key}")
  string(SUBSTRING "${key}" 0 16 key)

  if(NOT "${${variable}_probed}" STREQUAL "${key}")
    list(TRANSFORM probe_DEFINITIONS PREPEND "-D")
    set(locale "$ENV{LC_ALL}")
    set(ENV{LC_ALL} C) # for the texts of the compiler, which are searched below
    try_compile(hetero_compiles "${PROJECT_BINARY_DIR}/CMakeFiles/probe" SOURCES "${source}"
      CMAKE_FLAGS "-DINCLUDE_DIRECTORIES=${probe_INCLUDES}" COMPILE_DEFINITIONS ${probe_DEFINITIONS}
      # The libraries of this project are linked in the same way: libraries of libraries may be missing.
      LINK_OPTIONS -Wl,--allow-shlib-undefined LINK_LIBRARIES ${probe_LIBRARIES} Threads::Threads ${CMAKE_DL_LIBS} rt CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON
      OUTPUT_VARIABLE text)
    set(ENV{LC_ALL} "${locale}")
    set(works "${hetero_compiles}")
    unset(hetero_compiles CACHE)
    set(reason "")
    if(NOT works)
      string(REGEX MATCH "[^\n]*(error|undefined reference|cannot find|file not recognized)[^\n]*" reason "${text}")
      string(REGEX REPLACE "^[^\n]*/" "" reason "${reason}")
      string(REPLACE ";" "," reason "${reason}")
      string(STRIP "${reason}" reason)
      if(reason STREQUAL "")
        set(reason "it does not compile and link")
      endif()
    endif()
    set(${variable}_probed "${key}" CACHE INTERNAL "")
    set(${variable}_works "${works}" CACHE INTERNAL "")
    set(${variable}_text "${reason}" CACHE INTERNAL "")
  endif()
  set(${variable} "${${variable}_works}" PARENT_SCOPE)
  set(${variable}_reason "${${variable}_text}" PARENT_SCOPE)
  set(${variable}_key "${key}" PARENT_SCOPE)
endfunction()

# hetero_off(<part> <reason>) adds to hetero_parts that a part is off, and removes the library that an earlier build made
# of the part. Otherwise the program would still use this library.
function(hetero_off part reason)
  file(REMOVE "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libhetero_${part}.so")
  set(hetero_parts "${hetero_parts}${part}: off (${reason})\n" PARENT_SCOPE)
endfunction()
