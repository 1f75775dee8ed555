# colls::tls: with OpenSSL 3, beside colls::colls or colls::header_only. In the source tree, and installed as a component of the
# package, whose user has the library.
if(NOT TARGET colls::tls)
    find_package(OpenSSL 3.0 QUIET COMPONENTS SSL Crypto)
    if(TARGET OpenSSL::SSL)
        add_library(colls::tls INTERFACE IMPORTED GLOBAL)
        target_link_libraries(colls::tls INTERFACE colls::header_only OpenSSL::SSL)
    endif()
endif()
if(NOT TARGET colls::tls)
    set(colls_tls_FOUND FALSE)
    set(colls_tls_NOT_FOUND_MESSAGE "it needs OpenSSL 3 and its headers (libssl-dev), which were not found")
endif()
