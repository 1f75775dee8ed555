// The algebra of schedules: reversed, compose, synchronising. Each takes schedules, or whole families.
#pragma once

#include <colls/algebra/compose.hpp>
#include <colls/algebra/reversed.hpp>
#include <colls/algebra/synchronising.hpp>
#include <colls/family.hpp>
