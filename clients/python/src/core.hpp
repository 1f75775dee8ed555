// Python's stable ABI of 3.11, and colls.h.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <colls.h>
