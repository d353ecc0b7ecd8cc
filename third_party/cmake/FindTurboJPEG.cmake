# Finds libturbojpeg (the TurboJPEG API of libjpeg-turbo).
#
#   TurboJPEG_FOUND, TurboJPEG_VERSION ("unknown version" without a .pc file)
#   TurboJPEG::TurboJPEG   imported target
# Each configuration searches again, because the package may have been removed since the last one.
unset(TurboJPEG_INCLUDE_DIR CACHE)
unset(TurboJPEG_LIBRARY CACHE)
find_path(TurboJPEG_INCLUDE_DIR turbojpeg.h)
find_library(TurboJPEG_LIBRARY NAMES turbojpeg)

# The header does not contain the version; the package's .pc file does.
set(TurboJPEG_VERSION "unknown version")
if(TurboJPEG_LIBRARY)
  get_filename_component(_libdir "${TurboJPEG_LIBRARY}" DIRECTORY)
  if(EXISTS "${_libdir}/pkgconfig/libturbojpeg.pc")
    file(STRINGS "${_libdir}/pkgconfig/libturbojpeg.pc" _line REGEX "^Version:")
    string(REGEX REPLACE "^Version:[ \t]*" "" TurboJPEG_VERSION "${_line}")
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TurboJPEG REQUIRED_VARS TurboJPEG_LIBRARY TurboJPEG_INCLUDE_DIR)

if(TurboJPEG_FOUND AND NOT TARGET TurboJPEG::TurboJPEG)
  add_library(TurboJPEG::TurboJPEG UNKNOWN IMPORTED)
  set_target_properties(TurboJPEG::TurboJPEG PROPERTIES
    IMPORTED_LOCATION "${TurboJPEG_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TurboJPEG_INCLUDE_DIR}")
endif()
mark_as_advanced(TurboJPEG_INCLUDE_DIR TurboJPEG_LIBRARY)
