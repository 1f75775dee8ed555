// Every family of schedules.
#pragma once

#include <colls/schedules/bine.hpp>
#include <colls/schedules/bruck.hpp>
#include <colls/schedules/circulant.hpp>
#include <colls/schedules/direct.hpp>
#include <colls/schedules/double_tree.hpp>
#include <colls/schedules/halving_doubling.hpp>
#include <colls/schedules/hierarchical.hpp>
#include <colls/schedules/host_hierarchy.hpp>
#include <colls/schedules/pat.hpp>
#include <colls/schedules/pipelined_broadcast.hpp>
#include <colls/schedules/recursive_doubling.hpp>
#include <colls/schedules/ring.hpp>
#include <colls/schedules/swing.hpp>
#include <colls/schedules/tree.hpp>
