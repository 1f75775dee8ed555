// Up to which group size the compiler proves the families in these tests. The run-time proof of the same tests, by the
// same code, goes on to 129 ranks (schedules/laws.hpp).
#pragma once

#ifndef COLLS_TEST_PROVEN_TO
#define COLLS_TEST_PROVEN_TO 16
#endif

inline constexpr int proven_to = COLLS_TEST_PROVEN_TO;
