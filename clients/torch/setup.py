# Builds colls_torch for the torch that is installed beside the Python that runs this; and its source distribution, which has the
# headers of colls within it, and needs no torch.
import atexit
import os
import re
import shutil
import sys
import sysconfig
import tempfile

from setuptools import setup
from setuptools.command.sdist import sdist

# pip builds in an environment of its own, without torch. The one that the module is for is here; another would not do.
sys.path.append(sysconfig.get_path("purelib"))
try:
    import torch
    from torch.utils.cpp_extension import BuildExtension, CppExtension
except ImportError:
    torch = None
    if not {"sdist", "egg_info"} & set(sys.argv):
        sys.exit("colls_torch: torch is not installed for this Python: pip install torch")

here = os.path.dirname(os.path.abspath(__file__))
os.chdir(here)
project = os.path.join(here, "..", "..")
places = [os.path.join(here, "include"), os.path.join(project, "include")]  # of a source distribution, and of the project
include = os.environ.get("COLLS_INCLUDE") or next((p for p in places if os.path.exists(p)), places[-1])
include = os.path.abspath(include)
if not os.path.exists(os.path.join(include, "colls", "colls.hpp")):
    sys.exit("colls_torch: run this within colls' source tree, or set COLLS_INCLUDE to the folder that has colls/colls.hpp")
with open(os.path.join(include, "colls", "config.hpp")) as config:
    version = ".".join(re.findall(r"^#define COLLS_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)$", config.read(), re.M))

# Networks beside TCP: their headers set themselves up.
headers = {"verbs": "transports/verbs", "ofi": "transports/ofi", "tls": "tls"}
network_libraries = {"verbs": ["ibverbs"], "ofi": ["fabric"], "tls": ["ssl", "crypto"]}
networks = [n for n in re.split("[;, ]+", os.environ.get("COLLS_TORCH_NETWORKS", "")) if n]
if set(networks) - set(headers):
    sys.exit(f"colls_torch: COLLS_TORCH_NETWORKS is '{' '.join(networks)}': it takes verbs, ofi and tls")

# Nothing is left beside the sources: pip builds here, in place. (Options of the command line come first.)
scratch = tempfile.mkdtemp(prefix="colls_torch_")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
with open(os.path.join(scratch, "networks.cpp"), "w") as file:
    file.writelines(f"#include <colls/{headers[n]}.hpp>\n" for n in networks)


class source_distribution(sdist):
    """The folder as it is, and the project's headers and licence, which lie outside of it."""

    def make_release_tree(self, base_dir, files):
        super().make_release_tree(base_dir, [f for f in files if not os.path.isabs(f) and not f.startswith("..")])
        for folder in ("src", "python", "tests"):
            kept = shutil.ignore_patterns("__pycache__", "_built_for.py", "*.so")
            shutil.copytree(folder, os.path.join(base_dir, folder), dirs_exist_ok=True, ignore=kept)
        shutil.copytree(os.path.join(include, "colls"), os.path.join(base_dir, "include", "colls"), dirs_exist_ok=True)
        if os.path.exists(os.path.join(project, "LICENSE")):
            shutil.copy(os.path.join(project, "LICENSE"), base_dir)


commands = {"sdist": source_distribution}
extensions = []
requires = ["torch"]
if torch is not None:
    # A build for CPUs and one for CUDA of a version have the same interfaces: the part behind + does not count.
    torch_version = torch.__version__.split("+")[0]
    built_for = f'torch = "{torch_version}"\ncxx11_abi = {torch.compiled_with_cxx11_abi()}\nversion = "{version}"\n'
    requires = [f"torch=={torch_version}"]

    class build_extension(BuildExtension.with_options(use_ninja=False)):
        """Writes down beside the module which torch it is for: __init__.py compares it with the one that is there."""

        def run(self):
            folder = os.path.join(self.build_lib, "colls_torch") if not self.inplace else "python"
            record = os.path.join(folder, "_built_for.py")
            known = open(record).read() if os.path.exists(record) else None
            self.force = self.force or known != built_for  # no objects of another torch
            super().run()
            os.makedirs(folder, exist_ok=True)
            with open(record, "w") as file:
                file.write(built_for)

    commands["build_ext"] = build_extension
    extensions = [
        CppExtension(
            "colls_torch._backend",
            ["src/backend.cpp", "src/module.cpp", "src/views.cpp", file.name]
            + [os.path.join(include, "colls", "src", f"{unit}.cpp") for unit in ("calls", "network", "folds", "dynamic")],
            include_dirs=[include],
            libraries=[library for n in networks for library in network_libraries[n]],
            define_macros=[("COLLS_SEPARATE", None)],
            extra_compile_args=["-std=c++20", "-O2", "-g0"],
        )
    ]

setup(
    name="colls_torch",
    version=version,
    description='The backend "colls" of torch.distributed',
    license="Apache-2.0",
    packages=["colls_torch"],
    # Not a folder of the package's name: Python would find that before what is installed.
    package_dir={"colls_torch": "python"},
    options={"build": {"build_base": scratch}, "egg_info": {"egg_base": scratch}},
    python_requires=">=3.10",
    install_requires=requires,
    # Where torch reads these, dist.init_process_group("colls") finds the backend without an import.
    entry_points={"torch.distributed.backends": ["colls = colls_torch:register"]},
    ext_modules=extensions,
    cmdclass=commands,
)
