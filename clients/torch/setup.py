# Builds colls_torch for the torch that is installed beside the Python that runs this.
import os
import sys
import sysconfig

from setuptools import setup

# pip builds in an environment of its own, without torch. The one that the module is for is here; another would not do.
sys.path.append(sysconfig.get_path("purelib"))
try:
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError:
    sys.exit("colls_torch: torch is not installed for this Python: pip install torch")

here = os.path.dirname(os.path.abspath(__file__))
os.chdir(here)
include = os.environ.get("COLLS_INCLUDE", os.path.join("..", "..", "include"))
if not os.path.exists(os.path.join(include, "colls", "colls.hpp")):
    sys.exit("colls_torch: run this within colls' source tree, or set COLLS_INCLUDE to the folder that has colls/colls.hpp")

setup(
    name="colls_torch",
    version="0.1.0",
    description='The backend "colls" of torch.distributed',
    packages=["colls_torch"],
    python_requires=">=3.10",
    # Where torch reads these, dist.init_process_group("colls") finds the backend without an import.
    entry_points={"torch.distributed.backends": ["colls = colls_torch:register"]},
    ext_modules=[
        CppExtension(
            "colls_torch._backend",
            ["src/backend.cpp", "src/module.cpp"]
            + [os.path.join(include, "colls", "src", f"{unit}.cpp") for unit in ("calls", "network", "folds", "dynamic")],
            include_dirs=[os.path.abspath(include)],
            define_macros=[("COLLS_SEPARATE", None)],
            extra_compile_args=["-std=c++20", "-O2"],
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
