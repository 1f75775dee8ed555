// The host core: schedules, their algebra, their proof and cost, operators, and the calls. Each transport is a header
// of its own besides: colls/transports/...
#pragma once

#include <colls/algebra.hpp>
#include <colls/collectives.hpp>
#include <colls/cost.hpp>
#include <colls/explain.hpp>
#include <colls/operation.hpp>
#include <colls/operators.hpp>
#include <colls/schedules.hpp>
#include <colls/types.hpp>
#include <colls/verify.hpp>
