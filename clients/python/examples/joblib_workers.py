"""Workers of joblib become a group: each has a part of the data, and all get the mean of the whole."""

import tempfile

import joblib
import numpy

import colls


def moments(rank, size, folder):
    with colls.bootstrap(rank, size, folder, "moments") as comm:
        x = numpy.arange(100_000)[rank::size].astype(float)
        sums = numpy.array([x.size, x.sum(), (x * x).sum()])
        comm.all_reduce(sums)
        mean = sums[1] / sums[0]
        return mean, numpy.sqrt(sums[2] / sums[0] - mean**2)


if __name__ == "__main__":
    workers = 4
    with tempfile.TemporaryDirectory() as folder:  # on several hosts, one that all of them see
        # All members must run at the same time: as many tasks as workers.
        jobs = (joblib.delayed(moments)(r, workers, folder) for r in range(workers))
        results = joblib.Parallel(n_jobs=workers, batch_size=1, pre_dispatch="all")(jobs)
    mean, deviation = results[0]
    assert results == [results[0]] * workers
    print(f"{workers} workers: the mean is {mean}, and the standard deviation {deviation:.1f}")
