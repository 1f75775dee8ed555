# Builds colls_torch for the torch that is installed beside the Python that runs this.
import atexit
import os
import re
import shutil
import sys
import sysconfig
import tempfile

from setuptools import setup

# pip builds in an environment of its own, without torch. The one that the module is for is here; another would not do.
sys.path.append(sysconfig.get_path("purelib"))
try:
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError:
    sys.exit("colls_torch: torch is not installed for this Python: pip install torch")

here = os.path.dirname(os.path.abspath(__file__))
os.chdir(here)
include = os.path.abspath(os.environ.get("COLLS_INCLUDE", os.path.join("..", "..", "include")))
if not os.path.exists(os.path.join(include, "colls", "colls.hpp")):
    sys.exit("colls_torch: run this within colls' source tree, or set COLLS_INCLUDE to the folder that has colls/colls.hpp")

# That of the library, which is built in.
with open(os.path.join(include, "colls", "config.hpp")) as config:
    version = ".".join(re.findall(r"^#define COLLS_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", config.read(), re.MULTILINE))

# Nothing is left beside the sources: pip builds here, in place. (Options of the command line come first.)
scratch = tempfile.mkdtemp(prefix="colls_torch_")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)

setup(
    name="colls_torch",
    version=version,
    description='The backend "colls" of torch.distributed',
    packages=["colls_torch"],
    # Not a folder of the package's name: Python would find that before what is installed.
    package_dir={"colls_torch": "python"},
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
    python_requires=">=3.10",
    # Where torch reads these, dist.init_process_group("colls") finds the backend without an import.
    entry_points={"torch.distributed.backends": ["colls = colls_torch:register"]},
    ext_modules=[
        CppExtension(
            "colls_torch._backend",
            ["src/backend.cpp", "src/module.cpp"]
            + [os.path.join(include, "colls", "src", f"{unit}.cpp") for unit in ("calls", "network", "folds", "dynamic")],
            include_dirs=[include],
            define_macros=[("COLLS_SEPARATE", None)],
            extra_compile_args=["-std=c++20", "-O2"],
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
