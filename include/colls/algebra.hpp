// The algebra of schedules: every combinator. Each takes schedules or whole families, and makes one of the same sort.
// (hierarchical, which is built of these, is in schedules/hierarchical.hpp.)
#pragma once

#include <colls/algebra/compose.hpp>
#include <colls/algebra/exclusive.hpp>
#include <colls/algebra/folded.hpp>
#include <colls/algebra/permuted.hpp>
#include <colls/algebra/reversed.hpp>
#include <colls/algebra/striped.hpp>
#include <colls/algebra/synchronising.hpp>
#include <colls/family.hpp>
