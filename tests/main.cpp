// The main function of every test program, where Catch2 has none compiled: it takes long.
#ifndef COLLS_TEST_CATCH_HAS_MAIN
#if !__has_include(<catch2/catch_all.hpp>)
#define CATCH_CONFIG_RUNNER
#endif
#include "catch.hpp"

int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
#endif

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#ifndef COLLS_TEST_SYMBOLIZER
#define COLLS_TEST_SYMBOLIZER ""
#endif
// ThreadSanitizer reports no race with a write that it has forgotten where it was: a long history.
// It asks by a pipe whether it may read memory, and then takes two threads' pipes of one number for a race of the
// program. Such a report is known by a function's name, for which the symbolizer is needed.
extern "C" const char* __tsan_default_options() {
    return "history_size=7:external_symbolizer_path=" COLLS_TEST_SYMBOLIZER;
}
extern "C" const char* __tsan_default_suppressions() { return "race:__sanitizer::IsAccessibleMemoryRange\n"; }
#endif
#endif
