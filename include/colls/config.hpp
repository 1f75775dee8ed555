// Version, what the library needs of a compiler, and how it is compiled. Everything in the library includes this first.
#pragma once

#if __cplusplus < 202002L && !(defined(_MSVC_LANG) && _MSVC_LANG >= 202002L)
#error "colls needs C++20: compile with -std=c++20"
#define COLLS_CANNOT_COMPILE
#endif

#if defined(__GNUC__) && !defined(__cpp_exceptions) && !defined(__EXCEPTIONS)
#error "colls needs exceptions, by which every call reports what has gone wrong: compile without -fno-exceptions"
#define COLLS_CANNOT_COMPILE
#endif

#if defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ != 8
#error "colls needs a target of 64 bits: ranks share words and offsets of 8 bytes"
#define COLLS_CANNOT_COMPILE
#endif

#if (defined(__clang__) && __clang_major__ < 16) || (!defined(__clang__) && defined(__GNUC__) && __GNUC__ < 11)
#error "colls needs g++ 11 or clang 16, or a later one: this compiler knows too little of C++20"
#define COLLS_CANNOT_COMPILE
#endif

#ifdef COLLS_CANNOT_COMPILE
// There is no such file: a compiler stops here, before errors that follow from that one.
#include <colls/the_error_above_says_why>
#endif

// A schedule is plain constexpr code; nvcc lets kernels call it under this option, which colls::cuda carries.
#if defined(__CUDACC__) && !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "colls under nvcc needs --expt-relaxed-constexpr: link colls::cuda, or add the option"
#endif

/// The version is MAJOR.MINOR.PATCH.
#define COLLS_VERSION_MAJOR 0
/// See COLLS_VERSION_MAJOR.
#define COLLS_VERSION_MINOR 2
/// See COLLS_VERSION_MAJOR.
#define COLLS_VERSION_PATCH 0

// What is behind calls and groups is included with them and compiled in each unit that uses them; or once. Then units
// define COLLS_SEPARATE, and include declarations only. The definitions are in one unit of the program, which defines
// COLLS_IMPLEMENTATION before it includes all headers of the library that the program uses; or in the sources in
// colls/src (CMake: link colls::colls).
#if defined(COLLS_IMPLEMENTATION)
#undef COLLS_SEPARATE
#define COLLS_SEPARATE_SOURCE
#endif
#if defined(COLLS_SEPARATE_SOURCE)
#define COLLS_INLINE
#else
#define COLLS_INLINE inline
#endif

// All units of a program are compiled in one of the two ways. Where some are not, the linker names the symbol below:
// the units of each way share a definition of it, in a comdat of their own. It is hidden: the libraries of a process
// may differ. (nvcc's front end knows no alias.)
#if defined(__ELF__) && !defined(__CUDACC__)
#if defined(COLLS_SEPARATE) || defined(COLLS_SEPARATE_SOURCE)
#define COLLS_COMPILED colls_compiled_with_COLLS_SEPARATE
#else
#define COLLS_COMPILED colls_compiled_header_only
#endif
#define COLLS_TEXT_OF(name) #name
#define COLLS_ALIAS_OF(name) gnu::visibility("hidden"), gnu::alias(COLLS_TEXT_OF(name))
extern "C" {
[[gnu::visibility("hidden"), gnu::used]] inline const char COLLS_COMPILED = 0;
extern const char colls_compile_all_units_with_COLLS_SEPARATE_or_all_without_it [[COLLS_ALIAS_OF(COLLS_COMPILED)]];
}
#undef COLLS_COMPILED
#undef COLLS_ALIAS_OF
#undef COLLS_TEXT_OF
#endif
