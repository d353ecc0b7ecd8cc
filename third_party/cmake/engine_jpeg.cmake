# libhetero_jpeg.so: JPEG decoding through libturbojpeg.
hetero_sources(jpeg_sources engine/data/jpeg/src)
find_package(TurboJPEG MODULE QUIET)
if(NOT jpeg_sources)
  string(APPEND hetero_parts "jpeg: off (no sources in engine/data/jpeg/src)\n")
elseif(NOT TurboJPEG_FOUND)
  string(APPEND hetero_parts "jpeg: off (no libturbojpeg: images are decoded by Go, several times slower; run: sudo apt-get install libturbojpeg0-dev, then make)\n")
else()
  add_library(hetero_jpeg SHARED ${jpeg_sources})
  target_include_directories(hetero_jpeg PRIVATE
    "${PROJECT_SOURCE_DIR}/engine/data/jpeg" "${PROJECT_SOURCE_DIR}/engine/device/native")
  target_link_libraries(hetero_jpeg PRIVATE TurboJPEG::TurboJPEG)
  string(APPEND hetero_parts "jpeg: on (libturbojpeg ${TurboJPEG_VERSION}${hetero_note})\n")
endif()
