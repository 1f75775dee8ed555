// Poisson's equation on a square by hypre: conjugate gradients with BoomerAMG. The solution is known.
#include <HYPRE.h>
#include <HYPRE_krylov.h>
#include <HYPRE_parcsr_ls.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double solution(int cell, int n) { return 1 + (cell % n) * (cell / n) % 5; }

// The largest error, on n by n cells; `iterations`: of the solver.
static double error_of(int n, int rank, int size, HYPRE_Int* iterations) {
    const int cells = n * n, first = (int)((long)cells * rank / size),
              last = (int)((long)cells * (rank + 1) / size) - 1;
    HYPRE_IJMatrix a;
    HYPRE_IJVector b, x;
    HYPRE_IJMatrixCreate(MPI_COMM_WORLD, first, last, first, last, &a);
    HYPRE_IJMatrixSetObjectType(a, HYPRE_PARCSR);
    HYPRE_IJMatrixInitialize(a);
    HYPRE_IJVectorCreate(MPI_COMM_WORLD, first, last, &b);
    HYPRE_IJVectorCreate(MPI_COMM_WORLD, first, last, &x);
    HYPRE_IJVectorSetObjectType(b, HYPRE_PARCSR);
    HYPRE_IJVectorSetObjectType(x, HYPRE_PARCSR);
    HYPRE_IJVectorInitialize(b);
    HYPRE_IJVectorInitialize(x);
    for (int i = first; i <= last; ++i) {
        HYPRE_BigInt row = i, neighbours[5];
        double values[5], sum = 0, zero = 0;
        HYPRE_Int count = 0;
        const int there[5] = {1, i % n > 0, i % n < n - 1, i >= n, i < cells - n}, step[5] = {0, -1, 1, -n, n};
        for (int k = 0; k < 5; ++k) {
            if (!there[k]) continue;
            neighbours[count] = i + step[k];
            values[count] = k == 0 ? 4 : -1;
            sum += values[count++] * solution(i + step[k], n);
        }
        HYPRE_IJMatrixSetValues(a, 1, &count, &row, neighbours, values);
        HYPRE_IJVectorSetValues(b, 1, &row, &sum);
        HYPRE_IJVectorSetValues(x, 1, &row, &zero);
    }
    HYPRE_IJMatrixAssemble(a);
    HYPRE_IJVectorAssemble(b);
    HYPRE_IJVectorAssemble(x);
    HYPRE_ParCSRMatrix matrix;
    HYPRE_ParVector right_side, result;
    HYPRE_IJMatrixGetObject(a, (void**)&matrix);
    HYPRE_IJVectorGetObject(b, (void**)&right_side);
    HYPRE_IJVectorGetObject(x, (void**)&result);
    HYPRE_Solver solver, smoother;
    HYPRE_ParCSRPCGCreate(MPI_COMM_WORLD, &solver);
    HYPRE_PCGSetTol(solver, 1e-12);
    HYPRE_PCGSetMaxIter(solver, 100);
    HYPRE_BoomerAMGCreate(&smoother);
    HYPRE_BoomerAMGSetTol(smoother, 0);
    HYPRE_BoomerAMGSetMaxIter(smoother, 1);
    HYPRE_PCGSetPrecond(
        solver, (HYPRE_PtrToSolverFcn)HYPRE_BoomerAMGSolve, (HYPRE_PtrToSolverFcn)HYPRE_BoomerAMGSetup, smoother);
    HYPRE_ParCSRPCGSetup(solver, matrix, right_side, result);
    HYPRE_ParCSRPCGSolve(solver, matrix, right_side, result);
    HYPRE_PCGGetNumIterations(solver, iterations);
    double own = 0, all = 0;
    for (int i = first; i <= last; ++i) {
        HYPRE_BigInt row = i;
        double value = 0;
        HYPRE_IJVectorGetValues(x, 1, &row, &value);
        own = fmax(own, fabs(value - solution(i, n)));
    }
    MPI_Allreduce(&own, &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    HYPRE_BoomerAMGDestroy(smoother);
    HYPRE_ParCSRPCGDestroy(solver);
    HYPRE_IJMatrixDestroy(a);
    HYPRE_IJVectorDestroy(b);
    HYPRE_IJVectorDestroy(x);
    return all;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, size, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    HYPRE_Init();
    for (int n = 8; n <= 128; n *= 2) {
        HYPRE_Int iterations = 0;
        const int right = error_of(n, rank, size, &iterations) < 1e-8;
        wrong += !right;
        if (rank == 0) printf("%d by %d cells, %d iterations: %s\n", n, n, (int)iterations, right ? "right" : "wrong");
    }
    if (rank == 0) printf("all %s\n", wrong == 0 ? "right" : "wrong");
    HYPRE_Finalize();
    MPI_Finalize();
    return wrong != 0;
}
