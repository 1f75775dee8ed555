// How far the compiler itself proves the families: their run-time proof, by the same code, goes on to 129 ranks
// (laws.hpp).
#pragma once

#ifndef COLLS_TEST_PROVEN_TO
#define COLLS_TEST_PROVEN_TO 16
#endif

inline constexpr int proven_to = COLLS_TEST_PROVEN_TO;
