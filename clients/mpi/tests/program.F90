! A program in Fortran that knows nothing of colls: collectives by the module mpi_f08 and by mpif.h, blocking,
! non-blocking and, with -DPERSISTENT, persistent. It compares each element with its own computation, and prints what
! rank 0 has called for tests/check.
module checks
    implicit none
    integer, parameter :: length = 500
    integer :: rank = 0, ranks = 0, checked = 0, wrong = 0, functions = 0
    character(len=32) :: names(64) = ''
    integer :: calls(64) = 0
contains
    subroutine made(name)
        character(len=*), intent(in) :: name
        integer :: i
        do i = 1, functions
            if (names(i) == name) exit
        end do
        if (i > functions) then
            functions = i
            names(i) = name
        end if
        calls(i) = calls(i) + 1
    end subroutine
    subroutine expect(found, right)
        integer, intent(in) :: found(:), right(:)
        checked = checked + size(found)
        wrong = wrong + count(found /= right)
    end subroutine
    ! What rank r gives.
    function given(r) result(values)
        integer, intent(in) :: r
        integer :: values(length), i
        values = [(i * (r + 1) + r, i = 1, length)]
    end function
    function total() result(values)
        integer :: values(length), r
        values = 0
        do r = 0, ranks - 1
            values = values + given(r)
        end do
    end function
end module

! An operator of the program: the larger one of the odd ones, which has another result than any of MPI's.
subroutine larger_odd(in, inout, n, datatype)
    implicit none
    integer, intent(in) :: n, in(n), datatype
    integer, intent(inout) :: inout(n)
    inout = max(ior(in, 1), ior(inout, 1))
    if (datatype == -1) inout = 0
end subroutine

subroutine by_mpif_h()
    use checks
    implicit none
    include 'mpif.h'
    external :: larger_odd
    integer :: mine(length), got(length), right(length), error, request, status(MPI_STATUS_SIZE)
    integer, allocatable :: everything(:)
    integer :: op, r, over
    logical :: done
    mine = given(rank)
    call MPI_BARRIER(MPI_COMM_WORLD, error)
    call made('MPI_Barrier')
    call MPI_ALLREDUCE(mine, got, length, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
    call made('MPI_Allreduce')
    call expect(got, total())
    got = mine
    call MPI_ALLREDUCE(MPI_IN_PLACE, got, length, MPI_INTEGER4, MPI_SUM, MPI_COMM_WORLD, error)
    call made('MPI_Allreduce')
    call expect(got, total())
    got = mine
    call MPI_BCAST(got, length, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
    call made('MPI_Bcast')
    call expect(got, given(ranks - 1))
    allocate (everything(length * ranks))
    call MPI_ALLGATHER(mine, length, MPI_INTEGER, everything, length, MPI_INTEGER, MPI_COMM_WORLD, error)
    call made('MPI_Allgather')
    do r = 0, ranks - 1
        call expect(everything(r * length + 1:(r + 1) * length), given(r))
    end do
    call MPI_OP_CREATE(larger_odd, .true., op, error)
    call MPI_REDUCE(mine, got, length, MPI_INTEGER, op, 0, MPI_COMM_WORLD, error)
    call made('MPI_Reduce')
    if (rank == 0) then
        right = mine
        do r = 0, ranks - 1
            if (ranks > 1) right = max(ior(right, 1), ior(given(r), 1))
        end do
        call expect(got, right)
    end if
    call MPI_OP_FREE(op, error)
    call MPI_IALLREDUCE(mine, got, length, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request, error)
    call made('MPI_Iallreduce')
    done = .false.
    do over = 1, 1000000
        call MPI_TEST(request, done, status, error)
        if (done) exit
    end do
    if (.not. done) call MPI_WAIT(request, MPI_STATUS_IGNORE, error)
    call expect(got, total())
end subroutine

subroutine by_mpi_f08()
    use checks
    use mpi_f08
    implicit none
    integer, asynchronous :: mine(length), got(length), sent(length)
    double precision :: sums(length)
    complex :: short_complex(length)
    complex(kind(1d0)) :: long_complex(length)
    real :: short_sums(length)
    integer(selected_int_kind(4)) :: short_integers(length)
    integer(selected_int_kind(18)) :: long_integers(length)
    integer :: i, from
    type(MPI_Comm) :: halves
    type(MPI_Request) :: requests(2)
    mine = given(rank)
    call MPI_Barrier(MPI_COMM_WORLD)
    call made('MPI_Barrier')
    call MPI_Allreduce(mine, got, length, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call made('MPI_Allreduce')
    call expect(got, total())
    sums = mine
    call MPI_Allreduce(MPI_IN_PLACE, sums, length, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
    call made('MPI_Allreduce')
    call expect(nint(sums), total())
    short_sums = real(mine)
    call MPI_Allreduce(MPI_IN_PLACE, short_sums, length, MPI_REAL4, MPI_SUM, MPI_COMM_WORLD)
    call expect(nint(short_sums), total())
    short_complex = cmplx(mine, -mine)
    call MPI_Allreduce(MPI_IN_PLACE, short_complex, length, MPI_COMPLEX, MPI_SUM, MPI_COMM_WORLD)
    call expect(nint(real(short_complex)), total())
    call expect(nint(aimag(short_complex)), -total())
    long_complex = cmplx(mine, -mine, kind(1d0))
    call MPI_Allreduce(MPI_IN_PLACE, long_complex, length, MPI_COMPLEX16, MPI_SUM, MPI_COMM_WORLD)
    call expect(nint(real(long_complex)), total())
    call expect(nint(aimag(long_complex)), -total())
    short_integers = int(mine, kind(short_integers))
    call MPI_Allreduce(MPI_IN_PLACE, short_integers, length, MPI_INTEGER2, MPI_MAX, MPI_COMM_WORLD)
    call expect(int(short_integers), given(ranks - 1))
    long_integers = -mine
    call MPI_Allreduce(MPI_IN_PLACE, long_integers, length, MPI_INTEGER8, MPI_SUM, MPI_COMM_WORLD)
    call expect(int(long_integers), -total())
    do i = 1, 5
        call made('MPI_Allreduce')
    end do
    got = 0
    call MPI_Scan(mine, got, length, MPI_INTEGER, MPI_MAX, MPI_COMM_WORLD)
    call made('MPI_Scan')
    call expect(got, mine)
    ! Ranks that wait in MPI advance what is under way; a copy of the communicator has a group of its own.
    got = merge(mine, 0, rank == 0)
    call MPI_Ibcast(got, length, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(1))
    call made('MPI_Ibcast')
    call MPI_Iallreduce(mine, sent, length, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(2))
    call made('MPI_Iallreduce')
    call MPI_Comm_dup(MPI_COMM_WORLD, halves)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call expect(got, given(0))
    call expect(sent, total())
    call MPI_Bcast(got, length, MPI_INTEGER, 0, halves)
    call made('MPI_Bcast')
    call MPI_Comm_free(halves)
    from = modulo(rank + 1, ranks)
    call MPI_Sendrecv(mine, length, MPI_INTEGER, modulo(rank - 1, ranks), 5, got, length, MPI_INTEGER, from, 5, &
        MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call expect(got, given(from))
#ifdef PERSISTENT
    call MPI_Allreduce_init(mine, got, length, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1))
    do i = 1, 3
        got = 0
        call MPI_Start(requests(1))
        call made('MPI_Allreduce_init')
        call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
        call expect(got, total())
    end do
    call MPI_Request_free(requests(1))
#else
    i = 0
#endif
end subroutine

program fortran
    use checks
    use mpi_f08
    implicit none
    integer :: i, all(2)
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    call by_mpif_h()
    call by_mpi_f08()
    call MPI_Allreduce([checked, wrong], all, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call made('MPI_Allreduce')
    if (rank == 0) then
        do i = 1, functions
            if (ranks > 1) then
                print '(a, 1x, a, 1x, i0, 1x, i0)', 'called', trim(names(i)), calls(i), 0
            else
                print '(a, 1x, a, 1x, i0, 1x, i0)', 'called', trim(names(i)), 0, calls(i)
            end if
        end do
        print '(a, 1x, i0)', 'functions', functions
        print '(i0, a, i0, a, i0, a)', ranks, ' ranks, ', all(1), ' checked, ', all(2), ' wrong'
    end if
    call MPI_Finalize()
end program
