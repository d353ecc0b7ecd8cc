# Finds oneDNN with the v3 API, searching in this order:
#   1. HETERO_ONEDNN_DIR (CMake or environment variable). If it is set, no other place is searched
#   2. onednn in HETERO_FETCHED or third_party: the pinned build that third_party/onednn.py installs
#   3. the system
#
#   OneDNN3_FOUND, OneDNN3_VERSION, OneDNN3_REASON (why it was not found), OneDNN3_INCLUDE_DIR
#   OneDNN3_SYSTEM         true if found on the system; otherwise it is copied to the folder of the built libraries
#   OneDNN3_LIBRARY_FILE   the library file, with links resolved
#   OneDNN3_THREADS        "gomp", "TBB", "sequential" or "other": its threading library
#   OneDNN3::OneDNN3       imported target
#
# The search does not use oneDNN's own CMake files, because some of its packages have none.
if(NOT HETERO_ONEDNN_DIR AND DEFINED ENV{HETERO_ONEDNN_DIR})
  set(HETERO_ONEDNN_DIR "$ENV{HETERO_ONEDNN_DIR}")
endif()

# _onednn3_look(<find options>…) searches for oneDNN. It sets _include, _library, and OneDNN3_VERSION from the header.
macro(_onednn3_look)
  # CMake before 3.21 ignores NO_CACHE.
  unset(_include CACHE)
  unset(_library CACHE)
  unset(_include)
  unset(_library)
  unset(OneDNN3_VERSION)
  find_path(_include oneapi/dnnl/dnnl_version.h PATH_SUFFIXES include NO_CACHE ${ARGN})
  find_library(_library NAMES dnnl libdnnl.so.3 PATH_SUFFIXES lib lib64 NO_CACHE ${ARGN})
  if(_include AND _library)
    file(STRINGS "${_include}/oneapi/dnnl/dnnl_version.h" _lines REGEX "#define DNNL_VERSION_(MAJOR|MINOR|PATCH) ")
    string(REGEX REPLACE ".*MAJOR ([0-9]+).*MINOR ([0-9]+).*PATCH ([0-9]+).*" "\\1.\\2.\\3" OneDNN3_VERSION "${_lines}")
  endif()
endmacro()

set(OneDNN3_SYSTEM FALSE)
if(HETERO_ONEDNN_DIR)
  _onednn3_look(PATHS "${HETERO_ONEDNN_DIR}" NO_DEFAULT_PATH)
  set(OneDNN3_REASON "no include/oneapi/dnnl/dnnl_version.h and lib/libdnnl.so under HETERO_ONEDNN_DIR=${HETERO_ONEDNN_DIR}")
else()
  _onednn3_look(PATHS "${HETERO_FETCHED}/onednn" "${PROJECT_SOURCE_DIR}/third_party/onednn" NO_DEFAULT_PATH)
  if(NOT OneDNN3_VERSION)
    _onednn3_look()
    set(OneDNN3_SYSTEM TRUE)
  endif()
  set(OneDNN3_REASON "none in third_party/onednn, none on the system")
endif()

set(OneDNN3_FOUND FALSE)
if(OneDNN3_VERSION AND (OneDNN3_VERSION VERSION_LESS 3.2 OR NOT OneDNN3_VERSION VERSION_LESS 4))
  set(OneDNN3_REASON "${_library} is oneDNN ${OneDNN3_VERSION}, want 3.2 or a later 3")
elseif(OneDNN3_VERSION)
  set(OneDNN3_FOUND TRUE)
endif()

if(OneDNN3_FOUND)
  file(STRINGS "${_include}/oneapi/dnnl/dnnl_config.h" _threads REGEX "#define DNNL_CPU_THREADING_RUNTIME ")
  if(_threads MATCHES "RUNTIME_OMP")
    set(OneDNN3_THREADS gomp)
  elseif(_threads MATCHES "RUNTIME_TBB")
    set(OneDNN3_THREADS TBB)
  elseif(_threads MATCHES "RUNTIME_SEQ")
    set(OneDNN3_THREADS sequential)
  else()
    set(OneDNN3_THREADS other)
  endif()
  set(OneDNN3_INCLUDE_DIR "${_include}")
  get_filename_component(OneDNN3_LIBRARY_FILE "${_library}" REALPATH)
  if(NOT TARGET OneDNN3::OneDNN3)
    add_library(OneDNN3::OneDNN3 UNKNOWN IMPORTED)
    set_target_properties(OneDNN3::OneDNN3 PROPERTIES
      IMPORTED_LOCATION "${_library}"
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_include}"
      INTERFACE_INCLUDE_DIRECTORIES "${_include}")
  endif()
endif()
