# libhetero_shm.so: collectives between the processes of one host.
hetero_sources(shm_sources engine/collective/shm/src)
add_library(hetero_shm SHARED ${shm_sources} engine/device/cpu/src/isa.cc)
target_include_directories(hetero_shm PRIVATE
  "${PROJECT_SOURCE_DIR}/engine/collective/shm" "${PROJECT_SOURCE_DIR}/engine/device/cpu/src")
set_target_properties(hetero_shm PROPERTIES LINK_DEPENDS "${hetero_exports}")
string(APPEND hetero_parts "shm: on (ranks on one host share memory${hetero_note})\n")
