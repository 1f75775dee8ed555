// Transforms of waves by FFTW's interface for MPI: each wave must become one peak, and come back.
#include <fftw3-mpi.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>

// The largest error of any rank.
static double largest(double own) {
    double all = 0;
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return all;
}

// A wave of frequency (a, b) in n by m numbers, by rows, and `transposed` by columns where it is transformed.
static double error_of(ptrdiff_t n, ptrdiff_t m, ptrdiff_t a, ptrdiff_t b, int transposed) {
    ptrdiff_t rows, first_row, columns, first_column;
    const ptrdiff_t size =
        fftw_mpi_local_size_2d_transposed(n, m, MPI_COMM_WORLD, &rows, &first_row, &columns, &first_column);
    fftw_complex* const x = fftw_alloc_complex((size_t)size + 1);
    const unsigned out = transposed ? FFTW_MPI_TRANSPOSED_OUT : 0, in = transposed ? FFTW_MPI_TRANSPOSED_IN : 0;
    const fftw_plan there =
        fftw_mpi_plan_dft_2d(n, m, x, x, MPI_COMM_WORLD, FFTW_FORWARD, (unsigned)FFTW_ESTIMATE | out);
    const fftw_plan back =
        fftw_mpi_plan_dft_2d(n, m, x, x, MPI_COMM_WORLD, FFTW_BACKWARD, (unsigned)FFTW_ESTIMATE | in);
    const double all = (double)(n * m), turn = 2 * acos(-1);
    for (ptrdiff_t i = 0; i < rows; ++i)
        for (ptrdiff_t j = 0; j < m; ++j) {
            const double at = turn * ((double)(a * (first_row + i) % n) / (double)n + (double)(b * j % m) / (double)m);
            x[i * m + j][0] = cos(at);
            x[i * m + j][1] = sin(at);
        }
    double error = 0;
    fftw_execute(there);
    const ptrdiff_t lines = transposed ? columns : rows, length = transposed ? n : m;
    for (ptrdiff_t i = 0; i < lines; ++i)
        for (ptrdiff_t j = 0; j < length; ++j) {
            const ptrdiff_t row = transposed ? j : first_row + i, column = transposed ? first_column + i : j;
            const double peak = row == a && column == b ? all : 0;
            error = fmax(error, hypot(x[i * length + j][0] - peak, x[i * length + j][1]) / all);
        }
    fftw_execute(back);
    for (ptrdiff_t i = 0; i < rows; ++i)
        for (ptrdiff_t j = 0; j < m; ++j) {
            const double at = turn * ((double)(a * (first_row + i) % n) / (double)n + (double)(b * j % m) / (double)m);
            error = fmax(error, hypot(x[i * m + j][0] / all - cos(at), x[i * m + j][1] / all - sin(at)));
        }
    fftw_destroy_plan(there);
    fftw_destroy_plan(back);
    fftw_free(x);
    return largest(error);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    fftw_mpi_init();
    int rank = 0, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const ptrdiff_t shapes[][4] = {{64, 32, 3, 5}, {30, 42, 29, 1}, {7, 5, 6, 4}, {256, 256, 100, 201}};
    for (int s = 0; s < 4; ++s)
        for (int transposed = 0; transposed < 2; ++transposed) {
            const ptrdiff_t* const k = shapes[s];
            const int right = error_of(k[0], k[1], k[2], k[3], transposed) < 1e-12;
            wrong += !right;
            if (rank == 0)
                printf("%td by %td%s: %s\n", k[0], k[1], transposed ? ", transposed" : "", right ? "right" : "wrong");
        }
    if (rank == 0) printf("all %s\n", wrong == 0 ? "right" : "wrong");
    fftw_mpi_cleanup();
    MPI_Finalize();
    return wrong != 0;
}
