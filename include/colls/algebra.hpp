// The algebra of schedules: reversed, compose, striped, permuted, folded, synchronising, exclusive. Each takes
// schedules, or whole families. (hierarchical, which is built on it, is in schedules/hierarchical.hpp.)
#pragma once

#include <colls/algebra/compose.hpp>
#include <colls/algebra/exclusive.hpp>
#include <colls/algebra/folded.hpp>
#include <colls/algebra/permuted.hpp>
#include <colls/algebra/reversed.hpp>
#include <colls/algebra/striped.hpp>
#include <colls/algebra/synchronising.hpp>
#include <colls/family.hpp>
