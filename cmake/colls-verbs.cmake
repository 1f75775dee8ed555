# colls::verbs: messages by RDMA (colls/transports/verbs.hpp).
include("${CMAKE_CURRENT_LIST_DIR}/library-component.cmake")
colls_library_component(verbs ibverbs infiniband/verbs.h)
