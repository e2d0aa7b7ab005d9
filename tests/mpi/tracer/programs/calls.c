/* One call of each kind, by two ranks, in an order that leaves nothing to chance. */
#include <mpi.h>
#include <stddef.h>

static int rank, other;
static double a[1000], b[1000];

static void probed_messages(void) {
    MPI_Message found;
    MPI_Status status;
    MPI_Request request;
    int is_there = 0;
    if (rank == 0) {
        MPI_Send(a, 3, MPI_INT, 1, 11, MPI_COMM_WORLD);
        MPI_Send(a, 4, MPI_INT, 1, 12, MPI_COMM_WORLD);
        return;
    }
    MPI_Mprobe(MPI_ANY_SOURCE, 11, MPI_COMM_WORLD, &found, &status);
    MPI_Mrecv(b, 9, MPI_INT, &found, MPI_STATUS_IGNORE);
    while (!is_there)
        MPI_Improbe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &is_there, &found, MPI_STATUS_IGNORE);
    MPI_Imrecv(b, 9, MPI_INT, &found, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void requests(void) {
    MPI_Request mine[4];
    int done[4], n, index, flag = 0;
    MPI_Status statuses[4];
    /* What no message comes for is taken back, and what is for nobody is nothing. */
    MPI_Irecv(b, 9, MPI_INT, other, 99, MPI_COMM_WORLD, &mine[0]);
    MPI_Cancel(&mine[0]);
    MPI_Wait(&mine[0], MPI_STATUS_IGNORE);
    MPI_Isend(a, 9, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &mine[0]);
    MPI_Irecv(b, 9, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &mine[1]);
    MPI_Isend(a, 5, MPI_INT, other, 21, MPI_COMM_WORLD, &mine[2]);
    MPI_Waitall(3, mine, MPI_STATUSES_IGNORE);
    /* One of two, then the other. */
    MPI_Irecv(b, 9, MPI_INT, other, 22, MPI_COMM_WORLD, &mine[0]);
    MPI_Irecv(b, 9, MPI_INT, other, 23, MPI_COMM_WORLD, &mine[1]);
    MPI_Send(a, 1, MPI_INT, other, 23, MPI_COMM_WORLD);
    MPI_Wait(&mine[1], statuses);
    MPI_Send(a, 2, MPI_INT, other, 22, MPI_COMM_WORLD);
    MPI_Waitany(2, mine, &index, statuses);
    /* Some, tested for. */
    MPI_Irecv(b, 9, MPI_INT, other, 24, MPI_COMM_WORLD, &mine[0]);
    MPI_Ssend_init(a, 1, MPI_INT, other, 24, MPI_COMM_WORLD, &mine[1]);
    MPI_Start(&mine[1]);
    for (n = 0; n < 1;)
        MPI_Testsome(1, mine, &n, done, MPI_STATUSES_IGNORE);
    while (!flag)
        MPI_Testany(1, &mine[1], &index, &flag, MPI_STATUS_IGNORE);
    MPI_Recv_init(b, 9, MPI_INT, other, 24, MPI_COMM_WORLD, &mine[0]);
    MPI_Startall(2, mine);
    for (flag = 0; !flag;)
        MPI_Testall(2, mine, &flag, MPI_STATUSES_IGNORE);
    MPI_Request_free(&mine[0]);
    MPI_Request_free(&mine[1]);
    MPI_Sendrecv_replace(a, 6, MPI_INT, other, 25, MPI_ANY_SOURCE, 25, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void collectives(MPI_Comm pair) {
    int counts[2] = {1, 2}, places[2] = {0, 1}, mine = 1 + rank;
    MPI_Datatype two;
    MPI_Type_vector(2, 1, 3, MPI_DOUBLE, &two);
    MPI_Type_commit(&two);
    MPI_Bcast(a, 3, two, 1, pair);
    MPI_Type_free(&two);
    if (rank == 0) {
        MPI_Gather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, 2, MPI_INT, 0, pair);
        MPI_Scatter(a, 2, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, pair);
        MPI_Gatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, counts, places, MPI_INT, 0, pair);
        MPI_Scatterv(a, counts, places, MPI_INT, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, 0, pair);
    } else {
        MPI_Gather(a, 2, MPI_INT, NULL, 0, MPI_DATATYPE_NULL, 0, pair);
        MPI_Scatter(NULL, 0, MPI_DATATYPE_NULL, b, 2, MPI_INT, 0, pair);
        MPI_Gatherv(a, mine, MPI_INT, NULL, NULL, NULL, MPI_DATATYPE_NULL, 0, pair);
        MPI_Scatterv(NULL, NULL, NULL, MPI_DATATYPE_NULL, b, mine, MPI_INT, 0, pair);
    }
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, 2, MPI_INT, pair);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, counts, places, MPI_INT, pair);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, b, 2, MPI_INT, pair);
    int rows[2] = {mine, mine};
    MPI_Alltoallv(a, counts, places, MPI_INT, b, rows, (int[]){0, 2}, MPI_INT, pair);
    MPI_Reduce(rank ? a : MPI_IN_PLACE, rank ? NULL : a, 3, MPI_INT, MPI_SUM, 0, pair);
    MPI_Allreduce(a, b, 3, MPI_INT, MPI_SUM, pair);
    MPI_Scan(a, b, 3, MPI_INT, MPI_SUM, pair);
    MPI_Exscan(a, b, 3, MPI_INT, MPI_SUM, pair);
    MPI_Reduce_scatter(a, b, counts, MPI_INT, MPI_SUM, pair);
    MPI_Reduce_scatter_block(a, b, 2, MPI_INT, MPI_SUM, pair);
    /* Begun in one order and waited for in another one, which differs between the ranks. */
    MPI_Request requests[2];
    MPI_Ibcast(a, 1, MPI_INT, 0, pair, &requests[0]);
    MPI_Iallreduce(a, b, 2, MPI_INT, MPI_SUM, pair, &requests[1]);
    if (rank == 0)
        MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Barrier(pair);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
    int code, length;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    other = 1 - rank;
    probed_messages();
    requests();
    /* The ranks of these two are the other way round. */
    MPI_Comm swapped, again;
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &swapped);
    MPI_Comm_dup(swapped, &again);
    MPI_Barrier(again);
    if (rank == 0)
        MPI_Send(a, 1, MPI_INT, 0, 31, swapped);
    else
        MPI_Recv(a, 1, MPI_INT, 1, 31, swapped, MPI_STATUS_IGNORE);
    MPI_Comm_free(&swapped);
    MPI_Comm_free(&again);
    MPI_Comm same;
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    collectives(same);
    /* What is not traced, and what goes wrong. */
    MPI_Win window;
    MPI_Win_create(a, sizeof a, 1, MPI_INFO_NULL, same, &window);
    MPI_Win_fence(0, window);
    MPI_Put(b, 1, MPI_INT, other, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    MPI_Win_free(&window);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    code = MPI_Send(a, 1, MPI_INT, 7, 0, MPI_COMM_WORLD);
    MPI_Error_class(code, &length);
    if (length != MPI_ERR_RANK)
        MPI_Abort(MPI_COMM_WORLD, 3);
    static double large[50000];
    MPI_Request buffered;
    int nbytes = sizeof large + MPI_BSEND_OVERHEAD;
    MPI_Buffer_attach(large, nbytes / 2);
    MPI_Bsend(a, 3, MPI_INT, other, 41, MPI_COMM_WORLD);
    MPI_Irecv(b, 3, MPI_INT, other, 41, MPI_COMM_WORLD, &buffered);
    MPI_Wait(&buffered, MPI_STATUS_IGNORE);
    MPI_Buffer_detach(&(void *){NULL}, &length);
    return MPI_Finalize();
}
