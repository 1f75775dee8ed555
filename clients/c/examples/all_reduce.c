// Every rank has a vector; all_reduce adds them up. mpirun -n 4 ./all_reduce, or by hand, each rank with COLLS_RANK and
// COLLS_SIZE.
// example-begin all_reduce
#include <colls.h>

#include <stdio.h>
#include <stdlib.h>

static void check(colls_status status) {
    if (status == COLLS_OK) return;
    fprintf(stderr, "%s\n", colls_error_text());  // which rank, what is wrong, where, what to do
    exit(1);
}

int main(void) {
    colls_comm comm;
    int rank, size;
    float x[1000];
    check(colls_check_abi(COLLS_C_ABI));
    check(colls_world(&comm));
    check(colls_rank(comm, &rank));
    check(colls_size(comm, &size));
    for (int i = 0; i < 1000; ++i) x[i] = (float)(rank + 1);
    check(colls_all_reduce(comm, x, x, 1000, COLLS_FLOAT32, COLLS_SUM, NULL));
    if (rank == 0) printf("%d ranks: x[999] is %g\n", size, x[999]);
    check(colls_comm_free(&comm));
    return 0;
}
// example-end
