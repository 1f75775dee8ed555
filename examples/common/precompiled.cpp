// Compiles the precompiled header; see precompiled.hpp.
#include "precompiled.hpp"
