# colls::ofi: messages by libfabric (colls/transports/ofi.hpp).
include("${CMAKE_CURRENT_LIST_DIR}/library-component.cmake")
colls_library_component(ofi fabric rdma/fabric.h)
