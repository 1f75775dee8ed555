// Systems of linear equations by ScaLAPACK's pdgesv, whose solutions are known.
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

void Cblacs_get(int context, int what, int* value);
void Cblacs_gridinit(int* context, const char* order, int rows, int columns);
void Cblacs_gridinfo(int context, int* rows, int* columns, int* row, int* column);
void Cblacs_gridexit(int context);
int numroc_(const int* n, const int* block, const int* place, const int* first, const int* places);
void descinit_(int* d, const int* m, const int* n, const int* row_block, const int* column_block, const int* first_row,
    const int* first_column, const int* context, const int* leading, int* info);
void pdgesv_(const int* n, const int* sides, double* a, const int* ia, const int* ja, const int* da, int* pivots,
    double* b, const int* ib, const int* jb, const int* db, int* info);

enum { block = 16 };

static double element(int i, int j) { return sin(1.0 + 37.0 * i + 11.0 * j * j) + (i == j ? 4 : 0); }
static double solution(int j) { return 1 + j % 7; }
// The index of the element that is `local` on the process at `place`.
static int global(int local, int place, int places) { return (local / block * places + place) * block + local % block; }

// The largest error of a system of n equations; below 0 where pdgesv fails.
static double error_of(int n, int context) {
    int rows, columns, row, column;
    Cblacs_gridinfo(context, &rows, &columns, &row, &column);
    const int zero = 0, one = 1, blocks = block;
    const int own_rows = numroc_(&n, &blocks, &row, &zero, &rows);
    const int own_columns = numroc_(&n, &blocks, &column, &zero, &columns);
    const int leading = own_rows > 0 ? own_rows : 1;
    int da[9], db[9], info = 0;
    descinit_(da, &n, &n, &blocks, &blocks, &zero, &zero, &context, &leading, &info);
    descinit_(db, &n, &one, &blocks, &blocks, &zero, &zero, &context, &leading, &info);
    double* const a = calloc((size_t)leading * (size_t)(own_columns + 1), sizeof *a);
    double* const b = calloc((size_t)leading, sizeof *b);
    int* const pivots = calloc((size_t)(leading + block), sizeof *pivots);
    for (int j = 0; j < own_columns; ++j)
        for (int i = 0; i < own_rows; ++i)
            a[i + j * leading] = element(global(i, row, rows), global(j, column, columns));
    for (int i = 0; i < own_rows && column == 0; ++i)
        for (int j = 0; j < n; ++j) b[i] += element(global(i, row, rows), j) * solution(j);
    pdgesv_(&n, &one, a, &one, &one, da, pivots, b, &one, &one, db, &info);
    double own = info == 0 ? 0 : INFINITY, all = 0;
    for (int i = 0; i < own_rows && column == 0; ++i) own = fmax(own, fabs(b[i] - solution(global(i, row, rows))));
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    free(a);
    free(b);
    free(pivots);
    return all;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, size, context, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int rows = size % 2 == 0 ? 2 : 1;
    Cblacs_get(0, 0, &context);
    Cblacs_gridinit(&context, "Row", rows, size / rows);
    for (int n = 1; n <= 400; n = 2 * n + 3) {
        const int right = error_of(n, context) < 1e-8;
        wrong += !right;
        if (rank == 0) printf("%d equations: %s\n", n, right ? "right" : "wrong");
    }
    if (rank == 0) printf("all %s\n", wrong == 0 ? "right" : "wrong");
    Cblacs_gridexit(context);
    MPI_Finalize();
    return wrong != 0;
}
