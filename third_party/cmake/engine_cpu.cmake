# libhetero_cpu.so: the CPU device, on oneDNN and OpenMP.
hetero_sources(cpu_sources engine/device/cpu/src)
if(NOT cpu_sources)
  string(APPEND hetero_parts "cpu: off (no sources in engine/device/cpu/src)\n")
  return()
endif()

set(cpu_onednn FALSE)
if(HETERO_ONEDNN)
  find_package(OneDNN3 MODULE QUIET)
  set(cpu_onednn ${OneDNN3_FOUND})
  if(NOT cpu_onednn AND HETERO_ONEDNN_DIR)
    message(FATAL_ERROR "no oneDNN v3 where you said: ${OneDNN3_REASON}")
  elseif(NOT cpu_onednn AND (hetero_x86 OR NOT HETERO_ONEDNN STREQUAL "auto"))
    message(FATAL_ERROR "no oneDNN v3 (${OneDNN3_REASON}); with a network, run: make deps\n"
      "Without a network: make HETERO_ONEDNN_DIR=<prefix of oneDNN 3.2 or a later 3>. "
      "To build with plain kernels, which are slow: make HETERO_ONEDNN=off")
  endif()
endif()

find_package(OpenMP COMPONENTS CXX)
if(NOT OpenMP_CXX_FOUND)
  message(FATAL_ERROR "the C++ compiler ${CMAKE_CXX_COMPILER} has no OpenMP; run: sudo apt-get install g++ && make clean && make CXX=g++")
endif()
set(cpu_openmp gomp)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(cpu_openmp "${CMAKE_CXX_COMPILER_ID}'s OpenMP")
endif()

add_library(hetero_cpu SHARED ${cpu_sources})
target_include_directories(hetero_cpu PRIVATE "${PROJECT_SOURCE_DIR}/engine/device/native")
target_link_libraries(hetero_cpu PRIVATE OpenMP::OpenMP_CXX)

if(cpu_onednn)
  target_compile_definitions(hetero_cpu PRIVATE HT_HAVE_ONEDNN=1)
  target_link_libraries(hetero_cpu PRIVATE OneDNN3::OneDNN3)
  if(OneDNN3_SYSTEM)
    get_filename_component(onednn_folder "${OneDNN3_LIBRARY_FILE}" DIRECTORY)
    set_property(TARGET hetero_cpu APPEND PROPERTY INSTALL_RPATH "${onednn_folder}")
  else()
    # The loader looks for the name the library calls itself by: libdnnl.so.3 for every 3.x.
    set(beside "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/libdnnl.so.3")
    add_custom_command(OUTPUT "${beside}" DEPENDS "${OneDNN3_LIBRARY_FILE}"
      COMMAND ${CMAKE_COMMAND} -E copy "${OneDNN3_LIBRARY_FILE}" "${beside}" COMMENT "Copying oneDNN beside libhetero_cpu.so")
    add_custom_target(hetero_cpu_onednn ALL DEPENDS "${beside}")
  endif()
  if(NOT OneDNN3_THREADS STREQUAL "gomp" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    message(WARNING "oneDNN runs on ${OneDNN3_THREADS}, our kernels on ${cpu_openmp}: two thread pools share the cores and "
      "training may take twice as long. Build with g++ and a oneDNN made for gomp.")
  endif()
  string(APPEND hetero_parts "cpu: on (oneDNN ${OneDNN3_VERSION}, ${cpu_openmp}${hetero_note})\n")
else()
  target_compile_definitions(hetero_cpu PRIVATE HT_HAVE_ONEDNN=0)
  if(HETERO_ONEDNN)
    message(WARNING "no oneDNN v3 (${OneDNN3_REASON}): the CPU device is built with plain kernels which are SLOW. "
      "Install oneDNN 3.2 or a later 3, or name its prefix: make HETERO_ONEDNN_DIR=<prefix>")
  endif()
  string(APPEND hetero_parts "cpu: on (PLAIN KERNELS, slow: no oneDNN; ${cpu_openmp}${hetero_note})\n")
endif()
