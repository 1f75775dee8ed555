// The precompiled header of data_parallel_sgd and of the programs of patterns/ and exercises/, compiled once a build
// tree. Each program still includes all that it uses.
#pragma once

#include "fashion_mnist.hpp"
#include "network.hpp"
#include "products.hpp"
#include "program.hpp"

#include <fmt/format.h>
#include <Eigen/Core>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <vector>
