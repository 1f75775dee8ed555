// The same with the calls and two transports, for the tests that make calls.
#pragma once

#include "precompiled.hpp"

#include <colls/colls.hpp>
#include <colls/transports/shm.hpp>
#include <colls/transports/threads.hpp>
