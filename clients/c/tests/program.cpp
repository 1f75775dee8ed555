// The same program in C++.
#include "program.c"
