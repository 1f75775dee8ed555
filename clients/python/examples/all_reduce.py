# example-begin all_reduce
import colls
import numpy

comm = colls.world()
x = numpy.full(1000, comm.rank + 1.0)
comm.all_reduce(x)  # in place; op="max", out=y, schedule="ring", ...
if comm.rank == 0:
    print(f"{comm.size} ranks: x[999] is {x[999]:g}")
# example-end all_reduce
