"""check_numpy.py INCLUDE LIBRARY COMPILER: tensors that NumPy exports by DLPack, in calls.

Compiles numpy_tensors.cpp as LIBRARY. Exits with 77 where Python has no NumPy.
"""
import ctypes
import os
import subprocess
import sys

try:
    import numpy as np
except ImportError:
    print("left out: this Python has no NumPy (apt-get install python3-numpy)")
    sys.exit(77)

include, library, compiler = sys.argv[1:]
source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "numpy_tensors.cpp")
subprocess.check_call([compiler, "-std=c++20", "-O0", "-shared", "-fPIC", "-pthread", "-I" + include, source, "-o", library])
calls = ctypes.CDLL(library)
python = ctypes.pythonapi
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
python.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
calls.flatten.restype = calls.twice.restype = ctypes.c_char_p
used = {b"dltensor": ctypes.create_string_buffer(b"used_dltensor"),
        b"dltensor_versioned": ctypes.create_string_buffer(b"used_dltensor_versioned")}
checked = 0


def exports():
    """How this NumPy exports: the older form, and from NumPy 2.1 on the versioned one."""
    yield False
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        yield True


def call(function, array, versioned, *more):
    """Calls a function with the array's tensor, as a consumer of its capsule does."""
    capsule = array.__dlpack__(max_version=(1, 0)) if versioned else array.__dlpack__()
    name = b"dltensor_versioned" if versioned else b"dltensor"
    pointer = python.PyCapsule_GetPointer(capsule, name)
    python.PyCapsule_SetName(capsule, ctypes.cast(used[name], ctypes.c_char_p))
    before = sys.getrefcount(array)
    said = function(ctypes.c_void_p(pointer), ctypes.c_bool(versioned), *more).decode()
    assert sys.getrefcount(array) == before - 1, "the deleter was not called once"
    return said


def check(what, condition, said=""):
    global checked
    checked += 1
    if not condition:
        sys.exit(f"{what}: {said or 'wrong'}")


arrays = {}
for dtype in ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16", "?"]:
    a = (np.arange(120) % 50).astype(dtype)
    arrays[f"{dtype}, in a row"] = a
    arrays[f"{dtype}, 3 dimensions"] = a.reshape(4, 5, 6)
    arrays[f"{dtype}, strided"] = a.reshape(4, 30)[::2, 1::3]
    arrays[f"{dtype}, transposed"] = a.reshape(4, 5, 6).transpose(2, 0, 1)
    arrays[f"{dtype}, Fortran"] = np.asfortranarray(a.reshape(10, 12))
    arrays[f"{dtype}, a column"] = a.reshape(10, 12)[:, 7]
arrays["a scalar"] = np.array(3.5)
arrays["empty"] = np.zeros((3, 0, 2))
arrays["one element"] = np.arange(9.0).reshape(3, 3)[2:, 1:2]

for versioned in exports():
    for what, a in arrays.items():
        out = np.zeros(a.size, a.dtype)
        said = call(calls.flatten, a, versioned, ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(a.size))
        check(what, said == "" and np.array_equal(out, a.flatten()), said)
        if a.dtype != np.dtype("?"):
            whole = a if a.base is None else a.base
            want, keep = a * a.dtype.type(2), whole.copy()
            nonzero = np.count_nonzero(a)
            said = call(calls.twice, a, versioned)
            check(what, said == "" and np.array_equal(a, want), said)
            check(what + ", the elements between", np.count_nonzero(whole != keep) == nonzero)
            whole[...] = keep

    a = np.arange(12.0).reshape(3, 4)
    out = np.zeros(1)
    at = ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(1)
    said = call(calls.flatten, a[::-1], versioned, *at)
    check("a negative stride", "stride -4 in dimension 0" in said, said)
    said = call(calls.flatten, np.lib.stride_tricks.as_strided(a, (5, 4), (0, 8)), versioned, *at)
    check("a stride of 0", "stride 0 in dimension 0" in said, said)
    if versioned:
        fixed = np.arange(3.0)
        fixed.flags.writeable = False
        check("read only", "read only" in call(calls.twice, fixed, versioned))
        out = np.zeros(3)
        said = call(calls.flatten, fixed, versioned, ctypes.c_void_p(out.ctypes.data), ctypes.c_size_t(3))
        check("read only, as an input", said == "" and np.array_equal(out, fixed), said)
print(f"NumPy {np.__version__}: {checked} checks")
